"""Give partitions back to their preferred leaders: the first of their replicas, where another one leads.

Brokers that were restarted have lost their leaderships to others; this spreads the load as it was meant to be. With
*Unclean* it does something else instead: partitions that nobody leads, because no replica in sync is alive, are given
to any replica that is. What only the lost ones had is lost then.
"""

from datetime import timedelta

from airflow.sdk import DAG

from logyard.dags.factories import params
from logyard.operators.leadership import ElectLeadersOperator


def elect_leaders_dag(prefix: str = params.PREFIX, logyard_conn_id: str = params.CONNECTION) -> DAG:
    """The DAG `<prefix>elect_leaders` on the cluster of that connection."""
    with DAG(
        dag_id=f"{prefix}elect_leaders",
        description="Elect the preferred leaders of partitions",
        schedule=None,
        catchup=False,
        max_active_runs=1,
        tags=[*params.TAGS, "leaders"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(minutes=15),
        doc_md=__doc__,
        params={
            "topics": params.topics("Topics to look at; all of them where empty."),
            "unclean": params.flag(
                "Unclean",
                "Instead, give partitions that nobody leads to any live replica. Records may be lost for good.",
            ),
            "dry_run": params.flag("Dry run", "Say which partitions would get a leader and elect none."),
        },
    ) as dag:
        ElectLeadersOperator(
            task_id="elect",
            topics="{{ params.topics | tojson }}",
            unclean="{{ params.unclean }}",
            dry_run="{{ params.dry_run }}",
            retries=1,
            retry_delay=timedelta(seconds=15),
            logyard_conn_id=logyard_conn_id,
        )
    return dag
