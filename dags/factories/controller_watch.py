"""Recover the controller automatically: runs when the controller changes or is lost, or a broker is lost.

The DAG is paused until you unpause it, because it starts brokers by itself. The triggerer reads the cluster every few
seconds, once for all watchers and deferred tasks together; no task runs while the cluster is healthy. After a normal
change of the controller the run finds the cluster healthy and does nothing.
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

    :param poll_interval_s: seconds between two reads of the cluster.
    :param patience: the number of reads in a row in which something must be wrong.
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
        doc_md=params.docs(__doc__, logyard_conn_id),
        params={
            "restart_brokers": params.flag(
                "Restart brokers", "Start brokers that should run and do not.", default=True
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
