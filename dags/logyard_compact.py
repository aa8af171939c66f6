"""Compact closed segments with Spark under leases; the brokers swap the results in."""

from datetime import timedelta

from airflow.sdk import DAG

from logyard.dags import params
from logyard.operators.spark import CompactSegmentsOperator


def compact_dag(
    prefix: str = "logyard_",
    logyard_conn_id: str = params.CONNECTION,
    spark_conn_id: str = params.SPARK_CONNECTION,
) -> DAG:
    """The DAG `<prefix>compact` on the cluster of that connection, by the Spark of the other."""
    with DAG(
        dag_id=f"{prefix}compact",
        description="Compact the closed segments of topics while the brokers are live",
        schedule=None,
        catchup=False,
        tags=[*params.TAGS, "segments", "spark"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(minutes=60),
        doc_md=__doc__,
        params={
            "topics": params.topics("Topics to compact."),
            "spark": params.mapping("Spark settings", "Settings of Spark for this run."),
            "options": params.mapping("Options", "Further options of the job, by their names without dashes."),
        },
    ) as dag:
        CompactSegmentsOperator(
            task_id="compact",
            topics="{{ params.topics | tojson }}",
            options="{{ params.options | tojson }}",
            spark_settings="{{ params.spark | tojson }}",
            logyard_conn_id=logyard_conn_id,
            conn_id=spark_conn_id,
        )
    return dag


dag = compact_dag()
