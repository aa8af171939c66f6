"""Bring the controller back as soon as it is lost: runs when the controller changes or is gone, or a broker is lost.

Off until somebody turns it on, since it starts brokers by itself. The triggerer looks at the cluster every few
seconds, once for all watchers and deferred tasks together; nothing runs while all is well. A controller that changed
without trouble is found healthy, and nothing is done.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher

from logyard.dags.factories import params
from logyard.operators.controller import RecoverControllerOperator
from logyard.operators.triggers.events import BrokerLostEvent, ControllerChangedEvent, UnderReplicationEvent


def controller_watch_dag(
    prefix: str = params.PREFIX,
    logyard_conn_id: str = params.CONNECTION,
    poll_interval_s: float = 5.0,
    patience: int = 3,
) -> DAG:
    """The DAG `<prefix>controller_watch` on the cluster of that connection.

    :param poll_interval_s: seconds between two looks at the cluster.
    :param patience: looks for which something has to be wrong.
    """
    listening: dict[str, Any] = {"logyard_conn_id": logyard_conn_id, "poll_interval_s": poll_interval_s}
    watched = [
        Asset(
            name=f"{prefix}{logyard_conn_id}_{what}",
            watchers=[AssetWatcher(name=f"{prefix}{logyard_conn_id}_{what}", trigger=trigger)],
        )
        for what, trigger in (
            ("controller", ControllerChangedEvent(patience=patience, **listening)),
            ("brokers", BrokerLostEvent(patience=patience, **listening)),
            ("replicas", UnderReplicationEvent(patience=patience * 4, **listening)),
        )
    ]
    with DAG(
        dag_id=f"{prefix}controller_watch",
        description="Recover the controller and lost brokers as soon as something is wrong",
        schedule=watched[0] | watched[1] | watched[2],
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=True,
        tags=[*params.TAGS, "controller"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(minutes=30),
        doc_md=__doc__,
        params={
            "restart_brokers": params.flag(
                "Restart brokers", "Start brokers that ought to run and do not.", default=True
            ),
        },
    ) as dag:
        RecoverControllerOperator(
            task_id="recover",
            restart_brokers="{{ params.restart_brokers }}",
            deferrable=True,
            retries=1,
            retry_delay=timedelta(seconds=30),
            logyard_conn_id=logyard_conn_id,
        )
    return dag
