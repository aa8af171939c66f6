"""`airflow logyard …`: the commands of `logyard` in Airflow's own, for the cluster of an Airflow connection.

Airflow takes commands of any provider since 3.3; before, only executors and auth managers could have some.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from logyard.cli import command_config

_HELP = "The commands of `logyard`: topics, groups, moves, rights"
_ABOUT = (
    "Everything after the options is a command of `logyard`: airflow logyard --conn-id kafka_west topics list. "
    "`airflow logyard -- --help` lists them."
)


def get_airflow_commands() -> list[Any]:
    """What Airflow's parser adds; called at every start of `airflow`, so nothing else is imported here."""
    from airflow.cli.cli_config import ActionCommand, Arg

    connection = Arg(  # type: ignore[no-untyped-call]
        ("--conn-id",),
        help="The Logyard connection whose address and login the command gets; without it the command names them",
    )
    words = Arg(  # type: ignore[no-untyped-call]
        ("words",), nargs=argparse.REMAINDER, metavar="COMMAND …", help="A command of `logyard` with its options"
    )
    return [ActionCommand(name="logyard", help=_HELP, description=_ABOUT, func=run, args=(connection, words))]


def run(args: Any) -> None:
    """Run one command. Raises SystemExit with its status."""
    from logyard.cli.main import main

    words = [word for place, word in enumerate(args.words) if place or word != "--"]
    if not args.conn_id:
        raise SystemExit(main(words))
    with tempfile.TemporaryDirectory(prefix="logyard-") as directory:
        raise SystemExit(main([*words, *reaching(args.conn_id, Path(directory))]))


def reaching(conn_id: str, directory: Path) -> list[str]:
    """The options that lead to a connection's cluster. The login goes by a file that only this user can read."""
    from airflow.models.connection import Connection

    from logyard.operators.hooks.cluster import read_connection

    settings = read_connection(Connection.get_connection_from_secrets(conn_id))
    file = directory / "client.properties"
    command_config.write(file, {name: str(value) for name, value in settings.security().items()}, "--command-config")
    # A connection's host needs no port, and the command's does.
    servers = [server if ":" in server else f"{server}:{command_config.USUAL_PORT}" for server in settings.bootstrap]
    return ["--bootstrap-server", ",".join(servers), "--command-config", str(file)]
