"""Reset the offsets of a consumer group: plan every offset, let a person approve the plan, set the approved offsets.

The group must have no members: while it has any, only they may commit. Exactly the plan is set: if the group has
committed other offsets since the plan, nothing is set and the run fails.
"""

from datetime import timedelta

from airflow.sdk import DAG, Param

from logyard.dags.factories import params
from logyard.dags.factories.tasks import approve_plan
from logyard.operators.groups import ResetOffsetsOperator

TO = r"^(earliest|latest|current|[+-]?\d{1,18}|\d{4}-\d{2}-\d{2}([T ][0-9:.,]+(Z|[+-][0-9:]+)?)?)$"


def reset_offsets_dag(prefix: str = params.PREFIX, logyard_conn_id: str = params.CONNECTION) -> DAG:
    """The DAG `<prefix>reset_offsets` on the cluster of that connection."""
    with DAG(
        dag_id=f"{prefix}reset_offsets",
        description="Set the offsets of a consumer group: plan, approve, set",
        schedule=None,
        catchup=False,
        tags=[*params.TAGS, "groups"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(hours=26),
        doc_md=params.docs(__doc__, logyard_conn_id),
        params=params.clusters(logyard_conn_id) | _form(),
    ) as dag:
        plan = ResetOffsetsOperator(
            task_id="plan",
            group="{{ params.group }}",
            topics="{{ params.topics | tojson }}",
            to="{{ params.to }}",
            dry_run=True,
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
        approve = approve_plan(
            "Set the offsets of group {{ params.group }} to {{ params.to }}?",
            required="{{ params.approve and not params.dry_run }}",
        )
        reset = ResetOffsetsOperator(
            task_id="reset",
            group="{{ params.group }}",
            plan=params.PLAN,
            dry_run="{{ params.dry_run }}",
            retries=2,
            retry_delay=timedelta(seconds=15),
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
        plan >> approve >> reset
    return dag


def _form() -> dict[str, Param]:
    return {
        "group": Param(
            type="string",
            minLength=1,
            maxLength=249,
            title="Group",
            description="The consumer group; setting offsets creates one that does not exist.",
        ),
        "to": Param(
            type="string",
            pattern=TO,
            title="To",
            description=(
                "earliest, latest, current, an offset (42), a number of records forward or back (+100, -100), or the "
                "first record at a time or later (2026-01-31T12:00:00, in UTC where no zone is given)."
            ),
            examples=["earliest", "latest", "-100", "2026-01-31T12:00:00Z"],
        ),
        "topics": params.topics("Topics to set offsets of; empty: those that the group has committed offsets for."),
        "dry_run": params.flag("Dry run", "Plan every offset, and set none."),
        "approve": params.approval(),
    }
