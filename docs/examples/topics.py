"""One DAG for each operator and sensor on topics."""

from airflow.sdk import DAG

from logyard.operators.sensors.cluster import TopicReadySensor
from logyard.operators.topics import (
    AddPartitionsOperator,
    AlterTopicOperator,
    CreateTopicOperator,
    DeleteRecordsOperator,
    DeleteTopicOperator,
)

with DAG("example_create_topic", schedule=None):
    CreateTopicOperator(
        task_id="create",
        topic="events",
        partitions=6,
        replication_factor=3,
        configs={"cleanup.policy": "compact", "min.insync.replicas": 2},
        if_exists="reconcile",
    )

with DAG("example_alter_topic", schedule=None):
    AlterTopicOperator(task_id="alter", topic="orders", configs={"retention.ms": 86_400_000, "max.message.bytes": None})

with DAG("example_add_partitions", schedule=None):
    AddPartitionsOperator(task_id="add", topic="orders", partitions=6)

with DAG("example_delete_records", schedule=None):
    DeleteRecordsOperator(task_id="delete", topic="orders", before={0: 10, 1: 10})

with DAG("example_delete_topic", schedule=None):
    DeleteTopicOperator(task_id="delete", topic="scratch", must_match="scratch.*", must_be_empty=True)

with DAG("example_topic_ready", schedule=None):
    TopicReadySensor(task_id="ready", topic="orders", partitions=3, deferrable=True, timeout=600)
