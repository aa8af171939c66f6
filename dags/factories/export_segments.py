"""Export new records to Parquet (or Delta Lake, or Iceberg) with Spark, every hour; no record is exported twice.

The factory's arguments or the form name the topics and the destination; without them the task is skipped. A run that
exported records adds an event, with offsets and row counts, to the asset of its destination (alias `logyard_exports`),
which can start other DAGs.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from logyard.dags.factories import params, spark_form
from logyard.dags.factories.schedules import in_timezone
from logyard.operators.airflow_names import conf
from logyard.operators.batches import BatchTopicsOperator
from logyard.operators.hooks.cluster import CONFIG_SECTION
from logyard.operators.spark import ExportSegmentsOperator

_FORMATS = ("binary", "string", "json")
_FROM_FORM: dict[str, Any] = {
    "destination": "{{ params.destination or '' }}",
    "mode": "{{ params.mode }}",
    "key_format": "{{ params.key_format }}",
    "value_format": "{{ params.value_format }}",
    "key_schema": "{{ params.key_schema or '' }}",
    "value_schema": "{{ params.value_schema or '' }}",
    "partition_by": "{{ params.partition_by | tojson }}",
    "options": "{{ params.options | tojson }}",
    "spark_settings": "{{ params.spark | tojson }}",
}


def export_segments_dag(
    prefix: str = params.PREFIX,
    logyard_conn_id: str = params.CONNECTION,
    spark_conn_id: str = params.SPARK_CONNECTION,
    topics: Sequence[str] | str = (),
    destination: str | None = None,
    store_conn_id: str | None = None,
    table: str | None = None,
    catalog_conn_id: str | None = None,
    schedule: str | None = "@hourly",
    timeout: timedelta | None = None,
    timezone: str | None = None,
    max_topics_a_job: int = 1000,
) -> DAG:
    """The DAG `<prefix>export_segments` on that connection's cluster, run by the other connection's Spark.

    :param topics: the topics that scheduled runs export.
    :param destination: a directory (a path or a `file:///` URL), or a folder of an object store (`s3://`, `gs://`, …).
    :param store_conn_id: the connection with the object store's credentials.
    :param table: a table of an Iceberg catalog, with its namespace; runs have the format iceberg then.
    :param catalog_conn_id: the catalog's connection.
    :param timeout: after this time a run ends, and keeps its commits. None: `[logyard] export_timeout_minutes`.
    :param timezone: the time zone of the schedule, such as `Europe/Berlin`; Airflow's default where it is None.
    :param max_topics_a_job: the most topics of one Spark job; one job at a time, because a table takes one writer.
    """
    with DAG(
        dag_id=f"{prefix}export_segments",
        description="Export the new records of topics to a table; no record is exported twice",
        schedule=in_timezone(schedule, timezone),
        catchup=False,
        max_active_runs=1,
        tags=[*params.TAGS, "segments", "spark"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timeout or _timeout(),
        doc_md=params.docs(__doc__, logyard_conn_id),
        params=_form(topics, destination, max_topics_a_job),
    ) as dag:
        choose = BatchTopicsOperator(
            task_id="choose",
            skip_without=True,
            topics="{{ params.topics | tojson }}",
            max_topics_a_job="{{ params.max_topics_a_job }}",
            logyard_conn_id=logyard_conn_id,
        )
        ExportSegmentsOperator.partial(
            task_id="export",
            skip_without=True,
            store_conn_id=store_conn_id,
            table=table,
            catalog_conn_id=catalog_conn_id,
            table_format="iceberg" if table else "{{ params.format }}",
            **_FROM_FORM,
            logyard_conn_id=logyard_conn_id,
            conn_id=spark_conn_id,
            max_active_tis_per_dagrun=1,
            map_index_template=params.TOPICS_OF_TASK,
        ).expand(topics=choose.output)
    return dag


def _timeout() -> timedelta:
    return timedelta(minutes=conf.getfloat(CONFIG_SECTION, "export_timeout_minutes", fallback=60.0))


def _form(topics: Sequence[str] | str, destination: str | None, max_topics_a_job: int) -> dict[str, Param]:
    return {
        "topics": params.topics("Topics to export.", default=topics),
        "destination": params.text(
            "Destination",
            "Directory of the table (a path or a file:/// URL), or s3://, gs://, abfss://.",
            default=destination,
        ),
        "max_topics_a_job": params.max_topics_a_job(max_topics_a_job),
        "format": params.choice(
            "Table", "Delta and Iceberg need their package in Spark's jars.", ("parquet", "delta", "iceberg")
        ),
        "mode": params.choice(
            "Mode", "append: every record; upsert: the latest record of each key.", ("append", "upsert")
        ),
        "key_format": params.choice(
            "Keys", "How keys are read; records with other keys become dead letters.", _FORMATS
        ),
        "value_format": params.choice("Values", "The same for values.", _FORMATS),
        "key_schema": params.text("Schema of keys", "Columns of JSON keys in Spark's DDL: id BIGINT, name STRING."),
        "value_schema": params.text("Schema of values", "The same for JSON values."),
        "partition_by": params.texts("Partition columns", "topic, date, or NAME=PATTERN: hour=%Y-%m-%dT%H."),
        "spark": spark_form.sizes(),
        "options": spark_form.options(spark_form.EXPORT),
    }
