"""Cancel reassignments that were started outside Airflow: by Kafka's tool, or by a script.

The task `plan` lists what moves; a person approves it; then exactly that is cancelled, and partitions go back to their
former replicas. A move whose former replicas are not alive and in sync is not cancelled: its partition would have no
leader. Moves of a run of `reassign_replicas` or `decommission_broker` are refused: mark that run's task as failed
instead.
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
        description="Cancel moves of replicas that another tool started",
        schedule=None,
        catchup=False,
        max_active_runs=1,
        tags=[*params.TAGS, "reassignment"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(hours=26),
        doc_md=params.docs(__doc__, logyard_conn_id),
        params={
            **params.clusters(logyard_conn_id),
            "topics": params.topics("Topics whose moves are cancelled; empty: all moves."),
            "remove_throttles": params.flag(
                "Remove throttles", "Also remove the throttles that were set for these moves.", default=True
            ),
            "dry_run": params.flag("Dry run", "Report what would be cancelled, and cancel nothing."),
            "approve": params.approval(),
        },
    ) as dag:
        plan = CancelReassignmentOperator(
            task_id="plan",
            topics="{{ params.topics | tojson }}",
            dry_run=True,
            holders=holders,
            logyard_conn_id=params.cluster(logyard_conn_id),
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
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
        plan >> approve >> cancel
    return dag
