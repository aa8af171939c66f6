"""Delete consumer groups with the offsets that they have committed.

A group with members is refused, and then no other is deleted either: stop its consumers first. A consumer that uses the
name later begins where its `auto.offset.reset` says.
"""

from datetime import timedelta

from airflow.sdk import DAG, Param

from logyard.dags.factories import params
from logyard.operators.groups import DeleteGroupsOperator


def delete_groups_dag(prefix: str = params.PREFIX, logyard_conn_id: str = params.CONNECTION) -> DAG:
    """The DAG `<prefix>delete_groups` on the cluster of that connection."""
    with DAG(
        dag_id=f"{prefix}delete_groups",
        description="Delete consumer groups with their committed offsets",
        schedule=None,
        catchup=False,
        tags=[*params.TAGS, "groups"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(minutes=15),
        doc_md=params.docs(__doc__, logyard_conn_id),
        params={
            **params.clusters(logyard_conn_id),
            "groups": Param(
                type="array",
                items={"type": "string", "minLength": 1, "maxLength": 249},
                minItems=1,
                uniqueItems=True,
                title="Groups",
                description="The consumer groups; none of them may have members.",
            ),
            "dry_run": params.flag("Dry run", "Report which groups would be deleted, and delete none."),
        },
    ) as dag:
        DeleteGroupsOperator(
            task_id="delete",
            groups="{{ params.groups | tojson }}",
            dry_run="{{ params.dry_run }}",
            retries=2,
            retry_delay=timedelta(seconds=15),
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
    return dag
