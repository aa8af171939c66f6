"""Create, alter, expand, empty and delete a topic from one form; steps that the form does not ask for do nothing."""

from datetime import timedelta

from airflow.sdk import DAG, Param

from logyard.dags.factories import params
from logyard.operators.topics import (
    AddPartitionsOperator,
    AlterTopicOperator,
    CreateTopicOperator,
    DeleteRecordsOperator,
    DeleteTopicOperator,
)


def topic_lifecycle_dag(prefix: str = params.PREFIX, logyard_conn_id: str = params.CONNECTION) -> DAG:
    """The DAG `<prefix>topic_lifecycle` on the cluster of that connection."""
    with DAG(
        dag_id=f"{prefix}topic_lifecycle",
        description="Create, alter, expand, empty and delete a topic",
        schedule=None,
        catchup=False,
        tags=[*params.TAGS, "topics"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(minutes=30),
        doc_md=params.docs(__doc__, logyard_conn_id),
        params=params.clusters(logyard_conn_id) | _form(),
    ) as dag:
        create = CreateTopicOperator(
            task_id="create",
            topic="{{ params.topic }}",
            partitions="{{ params.partitions }}",
            replication_factor="{{ params.replication_factor }}",
            configs="{{ params.configs | tojson }}",
            # After an expansion the topic has more partitions than the form says: a second run must not fail on that.
            if_exists="skip",
            dry_run="{{ params.dry_run }}",
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
        alter = AlterTopicOperator(
            task_id="alter",
            topic="{{ params.topic }}",
            configs="{{ params.alter | tojson }}",
            dry_run="{{ params.dry_run }}",
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
        expand = AddPartitionsOperator(
            task_id="expand",
            topic="{{ params.topic }}",
            partitions="{{ params.expand_to }}",
            allow_keyed=True,
            dry_run="{{ params.dry_run }}",
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
        empty = DeleteRecordsOperator(
            task_id="empty",
            topic="{{ params.topic }}",
            before="{{ params.delete_records | tojson }}",
            dry_run="{{ params.dry_run }}",
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
        delete = DeleteTopicOperator(
            task_id="delete",
            topic="{{ params.topic }}",
            wanted="{{ params.delete }}",
            must_be_empty="{{ params.must_be_empty }}",
            must_have_no_group="{{ params.must_have_no_group }}",
            dry_run="{{ params.dry_run }}",
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
        create >> alter >> expand >> empty >> delete
    return dag


def _form() -> dict[str, Param]:
    return {
        "topic": params.required_topic(),
        "partitions": params.number("Partitions", "At creation; empty: the broker's default.", minimum=1),
        "replication_factor": params.number("Replication factor", "Empty: the broker's default.", minimum=1),
        "configs": params.mapping("Settings", "Settings at creation."),
        "alter": params.mapping("Alter", "Settings to set afterwards; null unsets."),
        "expand_to": params.number("Expand to", "The number of partitions afterwards; empty: as created.", minimum=1),
        "delete_records": params.mapping(
            "Delete records", 'Each partition\'s first offset to keep: {"0": 832}. The records before it are lost.'
        ),
        "delete": params.flag("Delete", "Delete the topic at the end."),
        "must_be_empty": params.flag("Only if empty", "Refuse to delete a topic that has records."),
        "must_have_no_group": params.flag(
            "Only if unread", "Refuse to delete a topic that a group with members reads.", default=True
        ),
        "dry_run": params.flag("Dry run", "Check everything, and change nothing."),
    }
