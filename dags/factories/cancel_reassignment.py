"""Cancel moves that nobody here started: those of Kafka's tool, or of somebody's script.

First it is looked at what moves; a person approves; then just that is cancelled, and partitions go back to the
replicas of before. A move whose former replicas are not alive and in sync goes on, for nobody could lead its partition.
What a run of `reassign_replicas` or `decommission_broker` moves is refused: mark that run's own task as failed instead.
"""

from datetime import timedelta

from airflow.sdk import DAG

from logyard.dags.factories import params
from logyard.dags.factories.tasks import approve_plan
from logyard.operators.cancellation import CancelReassignmentOperator


def cancel_reassignment_dag(prefix: str = params.PREFIX, logyard_conn_id: str = params.CONNECTION) -> DAG:
    """The DAG `<prefix>cancel_reassignment` on the cluster of that connection."""
    holders = {f"{prefix}reassign_replicas": "execute", f"{prefix}decommission_broker": "decommission"}
    with DAG(
        dag_id=f"{prefix}cancel_reassignment",
        description="Cancel moves of replicas that another tool has started",
        schedule=None,
        catchup=False,
        max_active_runs=1,
        tags=[*params.TAGS, "reassignment"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(hours=26),
        doc_md=__doc__,
        params={
            "topics": params.topics("Topics whose moves are cancelled; whatever moves where empty."),
            "remove_throttles": params.flag(
                "Remove throttles", "Remove the throttles that were set for these moves, too.", default=True
            ),
            "dry_run": params.flag("Dry run", "Say what would be cancelled and let it go on."),
            "approve": params.approval(),
        },
    ) as dag:
        plan = CancelReassignmentOperator(
            task_id="plan",
            topics="{{ params.topics | tojson }}",
            dry_run=True,
            holders=holders,
            logyard_conn_id=logyard_conn_id,
        )
        approve = approve_plan("Cancel these moves?", required="{{ params.approve and not params.dry_run }}")
        cancel = CancelReassignmentOperator(
            task_id="cancel",
            plan=params.PLAN,
            remove_throttles="{{ params.remove_throttles }}",
            dry_run="{{ params.dry_run }}",
            holders=holders,
            retries=2,
            retry_delay=timedelta(seconds=15),
            logyard_conn_id=logyard_conn_id,
        )
        plan >> approve >> cancel
    return dag
