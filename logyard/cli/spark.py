"""`logyard spark`: packages the jobs for a Spark cluster without Logyard."""

from pathlib import Path
from typing import Annotated

import typer

from logyard.spark_jobs import shipping

app = typer.Typer(help="Package the jobs for a Spark cluster.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def spark() -> None:
    """Package the jobs for a Spark cluster."""


@app.command()
def package(
    output: Annotated[Path, typer.Option("--output", help="Directory for the output.")] = Path("build"),
    with_env: Annotated[
        bool,
        typer.Option(
            "--with-env", help="Also pack the libraries, for executors whose Python lacks them; takes minutes."
        ),
    ] = False,
) -> None:
    """Make logyard-spark.zip for --py-files, one script per job, and with --with-env logyard-env.tar.gz for
    --archives; prints the spark-submit line that uses them.

    Example:

    \b
        logyard spark package --output build
        logyard spark package --output build --with-env
    """
    zip_path, environment = output / "logyard-spark.zip", output / "logyard-env.tar.gz" if with_env else None
    count = shipping.write_zip(zip_path)
    typer.echo(f"{zip_path}: {count} modules, {zip_path.stat().st_size:,} bytes")
    scripts = [shipping.write_job(output, job) for job in shipping.JOBS]
    typer.echo(f"jobs: {', '.join(map(str, scripts))}")
    if environment is not None:
        typer.echo("packing the libraries…", err=True)
        wanted = shipping.write_environment(environment)
        typer.echo(f"{environment}: {', '.join(wanted)}; {environment.stat().st_size:,} bytes")
    typer.echo(shipping.submit_words(zip_path, scripts[0], environment))
