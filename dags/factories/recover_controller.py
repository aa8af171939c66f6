"""Recover the controller: diagnose it, fence or restart what is broken, and check that the cluster is healthy.

It may run at any time, also when nothing is wrong. `controller_watch` does the same automatically.
"""

from datetime import timedelta

from airflow.sdk import DAG

from logyard.dags.factories import params
from logyard.operators.controller import RecoverControllerOperator


def recover_controller_dag(prefix: str = params.PREFIX, logyard_conn_id: str = params.CONNECTION) -> DAG:
    """The DAG `<prefix>recover_controller` on the cluster of that connection."""
    with DAG(
        dag_id=f"{prefix}recover_controller",
        description="Recover a dead, hung or missing controller and restart lost brokers",
        schedule=None,
        catchup=False,
        max_active_runs=1,
        tags=[*params.TAGS, "controller"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(minutes=20),
        doc_md=params.docs(__doc__, logyard_conn_id),
        params={
            **params.clusters(logyard_conn_id),
            "epoch_before": params.number(
                "Epoch before", "The controller epoch before the failure, if known: the new one must be higher."
            ),
            "controller_before": params.number("Controller before", "The controller before the failure, if known."),
            "restart_brokers": params.flag(
                "Restart brokers", "Start brokers that should run and do not.", default=True
            ),
            "dry_run": params.flag("Dry run", "Report what is wrong, and change nothing."),
        },
    ) as dag:
        RecoverControllerOperator(
            task_id="recover",
            epoch_before="{{ params.epoch_before }}",
            controller_before="{{ params.controller_before }}",
            restart_brokers="{{ params.restart_brokers }}",
            dry_run="{{ params.dry_run }}",
            deferrable=True,
            retries=1,
            retry_delay=timedelta(seconds=5),
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
    return dag
