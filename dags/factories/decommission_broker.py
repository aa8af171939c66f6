"""Take brokers out of service: plan the moves, let a person approve them, empty the brokers, stop them if asked.

Exactly the approved moves are made: if replicas have moved since the plan, the run fails and says so. The task `verify`
ends a throttle that was left behind.
"""

from datetime import timedelta

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Param

from logyard.dags.factories import params
from logyard.dags.factories.tasks import approve_plan, verify_moves
from logyard.operators.decommission import DecommissionBrokerOperator
from logyard.operators.reassignment import PlanReassignmentOperator


def decommission_broker_dag(prefix: str = params.PREFIX, logyard_conn_id: str = params.CONNECTION) -> DAG:
    """The DAG `<prefix>decommission_broker` on the cluster of that connection."""
    with DAG(
        dag_id=f"{prefix}decommission_broker",
        description="Move all replicas off brokers, and optionally stop them",
        schedule=None,
        catchup=False,
        max_active_runs=1,
        tags=[*params.TAGS, "reassignment", "brokers"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(hours=48),
        doc_md=params.docs(__doc__, logyard_conn_id),
        params=params.clusters(logyard_conn_id) | _form(),
    ) as dag:
        plan = PlanReassignmentOperator(
            task_id="plan",
            drain="{{ params.brokers | tojson }}",
            replication_factor="{{ params.replication_factor }}",
            disk_capacities="{{ params.disk_capacities | tojson }}",
            disk_limit="{{ params.disk_limit }}",
            only_drained=True,
            throttle="{{ params.throttle }}",
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
        approve = approve_plan("Empty brokers {{ params.brokers | join(', ') }}?")
        decommission = DecommissionBrokerOperator(
            task_id="decommission",
            brokers="{{ params.brokers | tojson }}",
            plan=params.PLAN,
            stop_brokers="{{ params.stop_brokers }}",
            throttle="{{ params.throttle }}",
            deferrable=True,
            wait_timeout_s=12 * 3600,
            retries=2,
            retry_delay=timedelta(seconds=15),
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
        verify = verify_moves(params.cluster(logyard_conn_id))
        # The state of a run is that of its last tasks: this one fails where the brokers are not out of service.
        out_of_service = EmptyOperator(task_id="out_of_service")
        plan >> approve >> decommission >> verify >> out_of_service
        decommission >> out_of_service
    return dag


def _form() -> dict[str, Param]:
    return {
        "brokers": params.brokers("Brokers", "The ids of the brokers to take out of service.", required=True),
        "replication_factor": params.number(
            "Replication factor", "A smaller one, where too few brokers remain.", minimum=1
        ),
        **params.disks(),
        "stop_brokers": params.flag("Stop them", "Stop the brokers at the end, by the launcher's command."),
        "throttle": params.throttle(),
        "approve": params.approval(),
    }
