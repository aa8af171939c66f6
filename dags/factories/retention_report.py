"""Report daily what topics retain: bytes, records, limits, records past their retention, suspicious settings."""

from datetime import timedelta

from airflow.sdk import DAG

from logyard.dags.factories import params
from logyard.dags.factories.schedules import in_timezone
from logyard.operators.reports import RetentionReportOperator


def retention_report_dag(
    prefix: str = params.PREFIX,
    logyard_conn_id: str = params.CONNECTION,
    schedule: str | None = "40 5 * * *",
    timezone: str | None = None,
) -> DAG:
    """The DAG `<prefix>retention_report` on the cluster of that connection.

    :param timezone: the time zone of the schedule, such as `Europe/Berlin`; Airflow's default where it is None.
    """
    with DAG(
        dag_id=f"{prefix}retention_report",
        description="Report what topics retain, and what is past its retention",
        schedule=in_timezone(schedule, timezone),
        catchup=False,
        tags=[*params.TAGS, "topics"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timedelta(minutes=30),
        doc_md=params.docs(__doc__, logyard_conn_id),
        params={
            **params.clusters(logyard_conn_id),
            "topics": params.topics("Topics to report on; empty: all but internal ones."),
        },
    ) as dag:
        RetentionReportOperator(
            task_id="report",
            topics="{{ params.topics | tojson }}",
            retries=1,
            retry_delay=timedelta(minutes=1),
            logyard_conn_id=params.cluster(logyard_conn_id),
        )
    return dag
