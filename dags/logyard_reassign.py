"""Move replicas: plan (or take a plan), execute in waves until done, then give leadership to the preferred leaders."""

from datetime import timedelta

from airflow.sdk import DAG, Param

from logyard.dags import params
from logyard.operators.leadership import ElectLeadersOperator
from logyard.operators.reassignment import ExecuteReassignmentOperator, PlanReassignmentOperator


def reassign_dag(prefix: str = "logyard_", logyard_conn_id: str = params.CONNECTION) -> DAG:
    """The DAG `<prefix>reassign` on the cluster of that connection."""
    with DAG(
        dag_id=f"{prefix}reassign",
        description="Move replicas of topics: plan, execute, elect",
        schedule=None,
        catchup=False,
        max_active_runs=1,
        tags=[*params.TAGS, "reassignment"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(hours=24),
        doc_md=__doc__,
        params={
            "topics": params.topics("Topics to plan for; all of them where empty."),
            "drain": Param([], type="array", items={"type": "integer"}, title="Drain", description="Brokers to empty."),
            "replication_factor": params.number(
                "Replication factor", "Bring partitions to this many replicas.", minimum=1
            ),
            "balance": Param(False, type="boolean", title="Balance", description="Even out replicas and leaders too."),
            "plan": params.mapping("Plan", "Instead of goals, the JSON that kafka-reassign-partitions reads."),
            "throttle": params.number("Throttle", "Bytes per second on each broker; empty: none.", minimum=1),
        },
    ) as dag:
        plan = PlanReassignmentOperator(
            task_id="plan",
            topics="{{ params.topics | tojson }}",
            drain="{{ params.drain | tojson }}",
            replication_factor="{{ params.replication_factor }}",
            balance="{{ params.balance }}",
            plan="{{ params.plan | tojson }}",
            throttle="{{ params.throttle }}",
            logyard_conn_id=logyard_conn_id,
        )
        execute = ExecuteReassignmentOperator(
            task_id="execute",
            plan="{{ ti.xcom_pull(task_ids='plan') | tojson }}",
            throttle="{{ params.throttle }}",
            elect_preferred=False,
            deferrable=True,
            wait_timeout_s=6 * 3600,
            logyard_conn_id=logyard_conn_id,
        )
        elect = ElectLeadersOperator(
            task_id="elect", topics="{{ params.topics | tojson }}", logyard_conn_id=logyard_conn_id
        )
        plan >> execute >> elect
    return dag


dag = reassign_dag()
