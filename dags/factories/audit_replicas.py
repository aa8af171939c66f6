"""Audit the segments of every replica with Spark; changes nothing."""

from datetime import timedelta

from airflow.sdk import DAG

from logyard.dags.factories import params
from logyard.operators.spark import AuditSegmentsOperator


def audit_replicas_dag(
    prefix: str = params.PREFIX,
    logyard_conn_id: str = params.CONNECTION,
    spark_conn_id: str = params.SPARK_CONNECTION,
    timeout: timedelta = timedelta(hours=6),
) -> DAG:
    """The DAG `<prefix>audit_replicas` on that connection's cluster, run by the other connection's Spark.

    :param timeout: after this time a run is ended.
    """
    with DAG(
        dag_id=f"{prefix}audit_replicas",
        description="Check every replica of topics: checksums, offsets, indexes, equality",
        schedule=None,
        catchup=False,
        tags=[*params.TAGS, "segments", "spark"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timeout,
        doc_md=__doc__,
        params={
            "topics": params.topics("Topics to audit."),
            "spark": params.mapping("Spark settings", "Settings of Spark for this run."),
            "options": params.mapping("Options", "Further options of the job, by their names without leading dashes."),
        },
    ) as dag:
        AuditSegmentsOperator(
            task_id="audit",
            topics="{{ params.topics | tojson }}",
            options="{{ params.options | tojson }}",
            spark_settings="{{ params.spark | tojson }}",
            logyard_conn_id=logyard_conn_id,
            conn_id=spark_conn_id,
        )
    return dag
