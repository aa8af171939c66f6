"""`logyard airflow`: the packaged DAGs in somebody's own Airflow."""

from pathlib import Path
from typing import Annotated

import typer

from logyard.local.airflow.dag_files import DAGS, DagFile, install

app = typer.Typer(help="Logyard's DAGs in an Airflow of your own.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def group() -> None:
    """Logyard's DAGs in an Airflow of your own."""


@app.command("install-dags")
def install_dags(
    directory: Annotated[Path, typer.Argument(help="Airflow's DAGs folder, or one below it.")],
    prefix: Annotated[str, typer.Option("--prefix", help="Prefix of every dag_id.")] = "logyard_",
    connection: Annotated[str, typer.Option("--connection", help="The cluster's connection id.")] = "logyard_default",
    spark_connection: Annotated[
        str, typer.Option("--spark-connection", help="The connection id of Spark.")
    ] = "spark_default",
    only: Annotated[list[str] | None, typer.Option("--dag", help="Only this DAG, by its name; repeatable.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Also replace files that somebody has changed.")] = False,
) -> None:
    """Write one-line files that import the packaged DAGs; an update of the package updates the DAGs.

    Only files that this command wrote and that nobody has changed since are replaced.

    Example:

    \b
        logyard airflow install-dags /opt/airflow/dags
        logyard airflow install-dags dags/west --prefix west_ --connection kafka_west --dag controller_watch
    """
    wanted = DagFile(prefix, connection, spark_connection)
    for path in install(directory, wanted, only or list(DAGS), force=force):
        typer.echo(str(path))
