"""Elect preferred leaders: the first replica of each partition, where another one leads.

A broker that was restarted has lost its partitions' leadership to others; this spreads the load again as planned. With
*Unclean* the run does something else: partitions without a leader, because no in-sync replica is alive, get any live
replica as leader. Records that only the lost replicas had are then lost.
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
        doc_md=params.docs(__doc__, logyard_conn_id),
        params={
            **params.clusters(logyard_conn_id),
            "topics": params.topics("Topics to consider; empty: all topics."),
            "unclean": params.flag(
                "Unclean",
                "Instead, elect any live replica for partitions without a leader. Records may be lost for good.",
            ),
            "dry_run": params.flag("Dry run", "Report which partitions would get another leader, and elect none."),
        },
    ) as dag:
        ElectLeadersOperator(
            task_id="elect",
            topics="{{ params.topics | tojson }}",
            unclean="{{ params.unclean }}",
            dry_run="{{ params.dry_run }}",
            retries=1,
            retry_delay=timedelta(seconds=15),
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
    return dag
