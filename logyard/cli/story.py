"""`logyard story`: one topic's changes, from the znode to the disks, from the brokers' logs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from logyard.admin import story as tale
from logyard.cli.options import Json
from logyard.local.errors import LocalError


def story(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    files: Annotated[list[Path] | None, typer.Argument(help="Logs of the brokers; alternatively --dir.")] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Directory of a cluster that `logyard cluster` started.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the history of a topic: each controller event, its cause, and what every broker did because of it.

    Example:

    \b
        logyard story flights --dir /tmp/yard
        logyard story flights /var/log/logyard/broker-*.log
    """
    if bool(files) == (directory is not None):
        raise LocalError("name the brokers' logs: files, or --dir of a cluster on this machine")
    found = tale.story((line for path in files or _logs(directory) for line in _read(path)), topic)
    if as_json:
        typer.echo(json.dumps(tale.as_json(found, topic), indent=2))
    elif found:
        typer.echo("\n".join(tale.text(found, topic)))
    else:
        raise LocalError(f"these logs do not mention topic {topic}")


def _logs(directory: Path | None) -> list[Path]:
    logs = (directory or Path()) / "logs"
    found = sorted(logs.glob("broker-*.log"))
    if not found:
        raise LocalError(f"there are no broker logs in {logs}: give --dir of `logyard cluster start`, or name the logs")
    return found


def _read(path: Path) -> Iterator[tale.Line]:
    if path.is_dir():
        raise LocalError(f"{path} is a directory: name the logs in it, or give a cluster's by --dir")
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            yield from tale.parse(lines)
    except OSError as problem:
        raise LocalError(f"{path}: {problem.strerror}") from None
