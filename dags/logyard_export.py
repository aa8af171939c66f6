"""Export records to Parquet with Spark; incremental, nothing is exported twice."""

from datetime import timedelta

from airflow.sdk import DAG, Param

from logyard.dags import params
from logyard.operators.spark import ExportSegmentsOperator


def export_dag(
    prefix: str = "logyard_",
    logyard_conn_id: str = params.CONNECTION,
    spark_conn_id: str = params.SPARK_CONNECTION,
) -> DAG:
    """The DAG `<prefix>export` on the cluster of that connection, by the Spark of the other."""
    with DAG(
        dag_id=f"{prefix}export",
        description="Export the records of topics to Parquet; a second run exports nothing twice",
        schedule=None,
        catchup=False,
        tags=[*params.TAGS, "segments", "spark"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(minutes=60),
        doc_md=__doc__,
        params={
            "topics": params.topics("Topics to export."),
            "destination": Param(
                None,
                type=["null", "string"],
                title="Destination",
                description="Directory (or URL) of the Parquet files.",
            ),
            "spark": params.mapping("Spark settings", "Settings of Spark for this run."),
            "options": params.mapping("Options", "Further options of the job, by their names without dashes."),
        },
    ) as dag:
        ExportSegmentsOperator(
            task_id="export",
            topics="{{ params.topics | tojson }}",
            destination="{{ params.destination or '' }}",
            options="{{ params.options | tojson }}",
            spark_settings="{{ params.spark | tojson }}",
            logyard_conn_id=logyard_conn_id,
            conn_id=spark_conn_id,
        )
    return dag


dag = export_dag()
