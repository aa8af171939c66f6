"""Audit the segments of every replica with Spark; changes nothing.

The topics are dealt to mapped tasks, each a Spark job that works through its topics.
"""

from datetime import timedelta

from airflow.sdk import DAG

from logyard.dags.factories import params, spark_form
from logyard.operators.batches import MAX_TOPICS_A_JOB, BatchTopicsOperator
from logyard.operators.spark import AuditSegmentsOperator


def audit_replicas_dag(
    prefix: str = params.PREFIX,
    logyard_conn_id: str = params.CONNECTION,
    spark_conn_id: str = params.SPARK_CONNECTION,
    timeout: timedelta = timedelta(hours=6),
    at_once: int = 2,
    max_topics_a_job: int = MAX_TOPICS_A_JOB,
) -> DAG:
    """The DAG `<prefix>audit_replicas` on that connection's cluster, run by the other connection's Spark.

    :param timeout: after this time a run is ended.
    :param at_once: the most Spark jobs that run at the same time.
    :param max_topics_a_job: the most topics that one Spark job works through.
    """
    with DAG(
        dag_id=f"{prefix}audit_replicas",
        description="Check every replica of topics: checksums, offsets, indexes, equality",
        schedule=None,
        catchup=False,
        tags=[*params.TAGS, "segments", "spark"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timeout,
        doc_md=params.docs(__doc__, logyard_conn_id),
        params={
            **params.clusters(logyard_conn_id),
            "topics": params.topics("Topics to audit."),
            "max_topics_a_job": params.max_topics_a_job(max_topics_a_job),
            "spark": spark_form.sizes(),
            "options": spark_form.options(spark_form.AUDIT),
        },
    ) as dag:
        choose = BatchTopicsOperator(
            task_id="choose",
            topics="{{ params.topics | tojson }}",
            max_topics_a_job="{{ params.max_topics_a_job }}",
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
        AuditSegmentsOperator.partial(
            task_id="audit",
            options="{{ params.options | tojson }}",
            spark_settings="{{ params.spark | tojson }}",
            logyard_conn_id=params.cluster(logyard_conn_id),
            conn_id=spark_conn_id,
            max_active_tis_per_dagrun=at_once,
            map_index_template=params.TOPICS_OF_TASK,
        ).expand(topics=choose.output)
    return dag
