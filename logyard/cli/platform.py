"""`logyard up`, `logyard down`, `logyard demo`: the whole platform on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from logyard.cli.cluster import parse_config
from logyard.cli.progress import say
from logyard.local import interrupts
from logyard.local.errors import LocalError
from logyard.local.layout import Settings

STATE = Path(".logyard")

State = Annotated[Path, typer.Option("--dir", help="Directory for everything.")]
Secure = Annotated[
    bool,
    typer.Option("--secure", help="TLS, log-ins (SCRAM) and ACLs; certificates and passwords are made in DIR."),
]


def up(
    directory: State = STATE,
    brokers: Annotated[int, typer.Option("--brokers", help="How many brokers.")] = 3,
    config: Annotated[
        list[str] | None, typer.Option("--config", help="key=value for every broker's server.properties; repeatable.")
    ] = None,
    secure: Secure = False,
    dags: Annotated[
        Path | None,
        typer.Option("--dags", help="Folder of your own DAGs, made if missing; without it, my-dags beside DIR."),
    ] = None,
) -> None:
    """Start ZooKeeper, brokers and Airflow, and leave them running; prints how to reach them.

    Example:

    \b
        logyard up
        logyard up --brokers 1 --config log.retention.hours=1
        logyard up --secure
    """
    from logyard.local.platform import Platform  # it needs logyard[local]

    platform = Platform(directory / "up", say, own_dags=dags or directory.absolute().parent / "my-dags")
    platform.start(Settings(brokers, config=parse_config(config or []), secure=secure))
    for name, value in platform.addresses():
        typer.echo(f"{name:<18}  {value}")
    typer.echo("`make down` stops all of it")


def down(directory: State = STATE) -> None:
    """Stop what `logyard up`, or an interrupted demo, left running.

    Example:

    \b
        logyard down
    """
    with interrupts.ignored():
        from logyard.local.platform import Platform

        ran, problems = list[bool](), list[str]()
        for name in ("up", "demo"):
            if (directory / name).is_dir():
                try:
                    ran.append(Platform(directory / name).stop())
                except LocalError as problem:
                    problems.append(str(problem))
    if problems:
        raise LocalError("; ".join(problems))
    typer.echo("stopped" if any(ran) else "nothing ran")


def demo(
    directory: State = STATE,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the platform running at the end, even after a failure.")
    ] = False,
    secure: Secure = False,
) -> None:
    """Run the main job on real data on its own platform, check every step, and print a report.

    Example:

    \b
        logyard demo
        logyard demo --keep
        logyard demo --secure
    """
    from logyard.local.demo.run import run  # pandas is loaded only where it is needed

    run(directory / "demo", keep=keep, secure=secure)


def add_commands(app: typer.Typer) -> None:
    """Put the three commands at the top of `logyard`."""
    for command in (up, down, demo):
        app.command()(command)
