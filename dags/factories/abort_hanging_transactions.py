"""Abort hanging transactions: find them, let a person approve, end exactly those that still hang.

A transaction hangs if it is open on a partition and its coordinator does not know of it: nobody ends it, and it holds
back consumers that read committed records only, and compaction. What is ended counts as aborted on its partition.
"""

from datetime import timedelta

from airflow.sdk import DAG, Param

from logyard.dags.factories import params
from logyard.dags.factories.tasks import approve_plan
from logyard.operators.transactions import AbortHangingTransactionsOperator


def abort_hanging_transactions_dag(prefix: str = params.PREFIX, logyard_conn_id: str = params.CONNECTION) -> DAG:
    """The DAG `<prefix>abort_hanging_transactions` on the cluster of that connection."""
    with DAG(
        dag_id=f"{prefix}abort_hanging_transactions",
        description="End transactions that no coordinator will end: find, approve, abort",
        schedule=None,
        catchup=False,
        tags=[*params.TAGS, "transactions"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(hours=26),
        doc_md=params.docs(__doc__, logyard_conn_id),
        params=params.clusters(logyard_conn_id) | _form(),
    ) as dag:
        plan = AbortHangingTransactionsOperator(
            task_id="plan",
            topics="{{ params.topics | tojson }}",
            idle_minutes="{{ params.idle_minutes }}",
            dry_run=True,
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
        approve = approve_plan(
            "Abort these hanging transactions?", required="{{ params.approve and not params.dry_run }}"
        )
        abort = AbortHangingTransactionsOperator(
            task_id="abort",
            topics="{{ params.topics | tojson }}",
            idle_minutes="{{ params.idle_minutes }}",
            plan=params.PLAN,
            dry_run="{{ params.dry_run }}",
            retries=2,
            retry_delay=timedelta(seconds=15),
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
        plan >> approve >> abort
    return dag


def _form() -> dict[str, Param]:
    return {
        "topics": params.topics("Topics to search; empty: all."),
        "idle_minutes": Param(
            15,
            type="integer",
            minimum=0,
            title="Idle minutes",
            description="For how long nothing was written in a hanging transaction; at least the brokers' "
            "transaction.max.timeout.ms.",
        ),
        "dry_run": params.flag("Dry run", "Find the transactions, and end none."),
        "approve": params.approval(),
    }
