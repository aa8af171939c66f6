"""`logyard zk`: find, explain and mend broken znodes."""

import json
import time
from typing import Annotated

import typer

from logyard.admin.zookeeper import checks, findings
from logyard.admin.zookeeper.findings import ZnodeFinding
from logyard.admin.zookeeper.survey import survey
from logyard.admin.zookeeper.znodes import ZnodeClient
from logyard.cli import options
from logyard.cli.options import Json, RequiredZooKeeper
from logyard.local.errors import LocalError

app = typer.Typer(help="Check the znodes of a cluster.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def zk() -> None:
    """Check the znodes of a cluster."""


@app.command()
def check(
    zookeeper: RequiredZooKeeper,
    fix: Annotated[
        bool, typer.Option("--fix", help="Apply the fixes marked --fix; without this they are only printed.")
    ] = False,
    as_json: Json = False,
    settle: Annotated[
        float,
        typer.Option("--settle", min=0, help="Seconds between two reads; only problems found in both are reported."),
    ] = 2.0,
) -> None:
    """Find broken znodes: what is wrong, what it causes, what helps. The exit status is 1 while anything is wrong.

    Nothing is written without --fix. With it, only repairs that lose nothing are made, and only on the version read.

    Example:

    \b
        logyard zk check --zookeeper localhost:2181
        logyard zk check --zookeeper localhost:2181/kafka --fix
    """
    with options.ensemble(zookeeper) as znodes:
        found = _look_twice(znodes, settle)
        done = {_key(one): findings.mend(znodes, one) for one in found if fix and one.can_be_mended}
    if as_json:
        documents = [
            {**one.as_json(), **({"mended": done[_key(one)] is None} if _key(one) in done else {})} for one in found
        ]
        typer.echo(json.dumps(documents, indent=2))
    else:
        for one in found:
            typer.echo("\n".join(_told(one, done)))
    left = [one for one in found if one.severity == findings.ERROR and done.get(_key(one), "not tried") is not None]
    if not found and not as_json:
        typer.echo("nothing is wrong")
    if left:
        mendable = sum(one.can_be_mended for one in left)
        hint = f"{mendable} of them can be fixed with --fix" if mendable else "none of them can be fixed automatically"
        raise LocalError(f"{len(left)} thing{'s' if len(left) > 1 else ''} wrong, {hint}")


def _look_twice(znodes: ZnodeClient, settle_s: float) -> list[ZnodeFinding]:
    found = checks.check(survey(znodes), _now_ms())
    if found and settle_s:
        time.sleep(settle_s)
        found = findings.lasting(found, checks.check(survey(znodes), _now_ms()))
    return found


def _told(finding: ZnodeFinding, done: dict[tuple[str, str], str | None]) -> list[str]:
    if _key(finding) not in done:
        return finding.lines()
    problem = done[_key(finding)]
    ended = "mended" if problem is None else f"not fixed: {problem}; it was changed meanwhile, check again"
    return [*finding.lines(), f"  {ended}"]


def _key(finding: ZnodeFinding) -> tuple[str, str]:
    return finding.path, finding.kind


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
