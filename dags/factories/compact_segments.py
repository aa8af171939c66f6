"""Compact closed segments with Spark under leases, every night; the brokers swap the results in.

The largest compacted topics are chosen (or those that the form names) and dealt to mapped tasks, a few at a time. Each
is a Spark job that works through its topics and skips partitions that are not dirty enough by the topic's settings.
"""

from datetime import timedelta

from airflow.sdk import DAG

from logyard.dags.factories import params, spark_form
from logyard.dags.factories.schedules import in_timezone
from logyard.operators.batches import MAX_TOPICS_A_JOB
from logyard.operators.reports import ChooseCompactionOperator
from logyard.operators.spark import CompactSegmentsOperator


def compact_segments_dag(
    prefix: str = params.PREFIX,
    logyard_conn_id: str = params.CONNECTION,
    spark_conn_id: str = params.SPARK_CONNECTION,
    schedule: str | None = "17 2 * * *",
    at_once: int = 2,
    max_topics_a_job: int = MAX_TOPICS_A_JOB,
    timeout: timedelta = timedelta(hours=6),
    timezone: str | None = None,
) -> DAG:
    """The DAG `<prefix>compact_segments` on that connection's cluster, run by the other connection's Spark.

    :param at_once: the most Spark jobs that run at the same time.
    :param max_topics_a_job: the most topics that one Spark job works through.
    :param timeout: after this time a run is ended.
    :param timezone: the time zone of the schedule, such as `Europe/Berlin`; Airflow's default where it is None.
    """
    with DAG(
        dag_id=f"{prefix}compact_segments",
        description="Compact the closed segments of topics while the brokers run",
        schedule=in_timezone(schedule, timezone),
        catchup=False,
        max_active_runs=1,
        tags=[*params.TAGS, "segments", "spark"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timeout,
        doc_md=params.docs(__doc__, logyard_conn_id),
        params={
            **params.clusters(logyard_conn_id),
            "topics": params.topics("Topics to compact; empty: the largest compacted ones."),
            "limit": params.number(
                "Topics at most", "The most topics that are chosen, where none is named.", default=200, minimum=1
            ),
            "max_topics_a_job": params.max_topics_a_job(max_topics_a_job),
            "bytes_min": params.number("Bytes at least", "Smaller topics are not chosen.", default=0, minimum=0),
            "spark": spark_form.sizes(),
            "options": spark_form.options(spark_form.COMPACTION),
        },
    ) as dag:
        choose = ChooseCompactionOperator(
            task_id="choose",
            topics="{{ params.topics | tojson }}",
            limit="{{ params.limit }}",
            bytes_min="{{ params.bytes_min }}",
            max_topics_a_job="{{ params.max_topics_a_job }}",
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
        CompactSegmentsOperator.partial(
            task_id="compact",
            options="{{ params.options | tojson }}",
            spark_settings="{{ params.spark | tojson }}",
            logyard_conn_id=params.cluster(logyard_conn_id),
            conn_id=spark_conn_id,
            max_active_tis_per_dagrun=at_once,
            map_index_template=params.TOPICS_OF_TASK,
        ).expand(topics=choose.output)
    return dag
