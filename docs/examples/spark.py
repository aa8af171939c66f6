"""Spark jobs over segments, and a DAG that runs when a topic was compacted."""

from airflow.sdk import DAG, Asset, task

from logyard.operators.spark import AuditSegmentsOperator, CompactSegmentsOperator, ExportSegmentsOperator
from logyard.operators.table_maintenance import MaintainTableOperator

with DAG("example_audit", schedule=None):
    AuditSegmentsOperator(task_id="audit", topics=["orders"])

with DAG("example_compact", schedule=None):
    CompactSegmentsOperator(task_id="compact", topics=["orders"])

with DAG("example_export", schedule="@hourly", catchup=False):
    ExportSegmentsOperator(
        task_id="export",
        topics=["orders"],
        destination="file:///data/orders",
        value_format="json",
        value_schema="order BIGINT, customer STRING",
        partition_by=["date"],
    )

with DAG("example_maintain_table", schedule="@daily", catchup=False):
    MaintainTableOperator(
        task_id="maintain",
        destination="s3://lake/orders",
        store_conn_id="orders_store",
        table="lake.orders",
        catalog_conn_id="orders_catalog",
        older_than_hours=72,
    )

with DAG("example_after_compaction", schedule=Asset("kafka://broker-1:9092/orders"), catchup=False):

    @task
    def what_happened(triggering_asset_events=None):
        return [event.extra for events in (triggering_asset_events or {}).values() for event in events]

    what_happened()
