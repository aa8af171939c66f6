"""Move replicas: plan (or take a plan), let a person approve it, execute in waves, verify, elect preferred leaders.

The task `plan` changes nothing; its result says which replicas move, how many bytes each broker has before and after,
and how to go back. If a worker dies in the middle, the retry adopts the moves that run. If the task `execute` is marked
as failed, its moves are cancelled; the task `verify` ends a throttle that was left behind.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from logyard.dags.factories import params
from logyard.dags.factories.tasks import approve_plan, verify_moves
from logyard.operators.leadership import ElectLeadersOperator
from logyard.operators.reassignment import ExecuteReassignmentOperator, PlanReassignmentOperator


def reassign_replicas_dag(
    prefix: str = params.PREFIX, logyard_conn_id: str = params.CONNECTION, deferrable: bool = True
) -> DAG:
    """The DAG `<prefix>reassign_replicas` on the cluster of that connection.

    :param deferrable: wait in the triggerer; if False, a worker's slot is occupied while replicas move.
    """
    with DAG(
        dag_id=f"{prefix}reassign_replicas",
        description="Move replicas of topics: plan, approve, execute, verify, elect",
        schedule=None,
        catchup=False,
        max_active_runs=1,
        tags=[*params.TAGS, "reassignment"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(hours=48),
        doc_md=params.docs(__doc__, logyard_conn_id),
        params=params.clusters(logyard_conn_id) | _form(),
    ) as dag:
        plan = PlanReassignmentOperator(
            task_id="plan",
            **_goals(),
            throttle="{{ params.throttle }}",
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
        approve = approve_plan("Move replicas as planned?")
        execute = ExecuteReassignmentOperator(
            task_id="execute",
            plan=params.PLAN,
            throttle="{{ params.throttle }}",
            elect_preferred=False,
            deferrable=deferrable,
            wait_timeout_s=6 * 3600,
            retries=2,
            retry_delay=timedelta(seconds=15),
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
        verify = verify_moves(params.cluster(logyard_conn_id), deferrable=deferrable)
        elect = ElectLeadersOperator(
            task_id="elect",
            topics="{{ params.topics | tojson }}",
            # As it was given, with the moves that were done before: their leaders are elected too. The form's empty one
            # is no plan.
            plan="{{ (params.plan or none) | tojson }}",
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
        plan >> approve >> execute >> verify >> elect
    return dag


def _goals() -> dict[str, Any]:
    """The goals of the plan, from the form."""
    return {
        "topics": "{{ params.topics | tojson }}",
        "drain": "{{ params.drain | tojson }}",
        "replication_factor": "{{ params.replication_factor }}",
        "balance": "{{ params.balance }}",
        "balance_disk": "{{ params.balance_disk }}",
        "disk_capacities": "{{ params.disk_capacities | tojson }}",
        "disk_limit": "{{ params.disk_limit }}",
        "plan": "{{ params.plan | tojson }}",
    }


def _form() -> dict[str, Param]:
    return {
        "topics": params.topics("Topics to plan for; empty: all topics."),
        "drain": params.brokers("Drain", "Brokers to empty."),
        "replication_factor": params.number("Replication factor", "Bring partitions to this many replicas.", minimum=1),
        "balance": params.flag("Balance counts", "Also balance the numbers of replicas and leaders."),
        "balance_disk": params.flag("Balance bytes", "Also balance the bytes on the brokers."),
        **params.disks(),
        "plan": params.mapping("Plan", "Instead of goals, a plan in the JSON format of kafka-reassign-partitions."),
        "throttle": params.throttle(),
        "approve": params.approval(),
    }
