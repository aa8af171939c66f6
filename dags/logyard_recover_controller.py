"""Bring the controller back: diagnose, fence or restart what has to be, and prove that the cluster is whole."""

from datetime import timedelta

from airflow.sdk import DAG, Param

from logyard.dags import params
from logyard.operators.controller import RecoverControllerOperator


def recover_controller_dag(prefix: str = "logyard_", logyard_conn_id: str = params.CONNECTION) -> DAG:
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
        doc_md=__doc__,
        params={
            "epoch_before": params.number(
                "Epoch before", "The controller epoch before the trouble, where it is known: the new one must be above."
            ),
            "controller_before": params.number("Controller before", "Who was controller then, where it is known."),
            "restart_brokers": Param(
                True, type="boolean", title="Restart brokers", description="Start brokers that ought to run and do not."
            ),
        },
    ) as dag:
        RecoverControllerOperator(
            task_id="recover",
            epoch_before="{{ params.epoch_before }}",
            controller_before="{{ params.controller_before }}",
            restart_brokers="{{ params.restart_brokers }}",
            logyard_conn_id=logyard_conn_id,
        )
    return dag


dag = recover_controller_dag()
