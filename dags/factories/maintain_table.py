"""Keep an export's table in an Iceberg catalog small, every night.

Small files become larger ones, old snapshots expire, and files that nothing names any more are deleted.

The factory's arguments or the form name the destination and the table; without them the task is skipped. Exports and
other programs may write meanwhile.
"""

from datetime import timedelta

from airflow.sdk import DAG, Param

from logyard.dags.factories import params, spark_form
from logyard.dags.factories.schedules import in_timezone
from logyard.operators.table_maintenance import MaintainTableOperator


def maintain_table_dag(
    prefix: str = params.PREFIX,
    logyard_conn_id: str = params.CONNECTION,
    spark_conn_id: str = params.SPARK_CONNECTION,
    destination: str | None = None,
    store_conn_id: str | None = None,
    table: str | None = None,
    catalog_conn_id: str | None = None,
    schedule: str | None = "41 3 * * *",
    timeout: timedelta = timedelta(hours=6),
    timezone: str | None = None,
    name: str = "maintain_table",
) -> DAG:
    """The DAG `<prefix><name>` on one table, run by that connection's Spark.

    :param logyard_conn_id: the cluster whose topics the table holds; it is not asked.
    :param destination: the export's destination.
    :param store_conn_id: the connection with the object store's credentials.
    :param table: the table of the Iceberg catalog, with its namespace.
    :param catalog_conn_id: the catalog's connection.
    :param timeout: after this time a run is ended.
    :param timezone: the time zone of the schedule, such as `Europe/Berlin`; Airflow's default where it is None.
    :param name: tells the DAGs of several tables apart.
    """
    with DAG(
        dag_id=f"{prefix}{name}",
        description="Merge small files and expire snapshots of an export's table in an Iceberg catalog",
        schedule=in_timezone(schedule, timezone),
        catchup=False,
        max_active_runs=1,
        tags=[*params.TAGS, "segments", "spark"],
        default_args={"owner": params.OWNER},
        dagrun_timeout=timeout,
        doc_md=params.docs(__doc__, logyard_conn_id),
        params=_form(destination, table, catalog_conn_id),
    ) as dag:
        MaintainTableOperator(
            task_id="maintain",
            skip_without=True,
            destination="{{ params.destination or '' }}",
            table="{{ params.table or '' }}",
            catalog_conn_id="{{ params.catalog or '' }}",
            store_conn_id=store_conn_id,
            older_than_hours="{{ params.older_than_hours }}",
            keep="{{ params.keep }}",
            target_file_mib="{{ params.target_file_mib }}",
            spark_settings="{{ params.spark | tojson }}",
            logyard_conn_id=logyard_conn_id,
            conn_id=spark_conn_id,
        )
    return dag


def _form(destination: str | None, table: str | None, catalog_conn_id: str | None) -> dict[str, Param]:
    return {
        "destination": params.text("Destination", "The export's destination.", default=destination),
        "table": params.text("Table", "With its namespace: lake.flights.", default=table),
        "catalog": params.catalog(catalog_conn_id),
        "older_than_hours": params.number(
            "Hours", "How long a snapshot stays after the next one; empty: the table's setting, or 120.", minimum=0
        ),
        "keep": params.number("Snapshots", "How many stay in any case; empty: the table's setting, or 1.", minimum=1),
        "target_file_mib": params.number(
            "MiB a file", "Files four times smaller than this are merged; 0: none.", default=128, minimum=0
        ),
        "spark": spark_form.sizes(),
    }
