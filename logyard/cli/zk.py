"""`logyard zk`: find, explain and mend broken znodes; secure all of a cluster's, or open them again."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from logyard.admin.zookeeper import checks, findings, migration
from logyard.admin.zookeeper.findings import ZnodeFinding
from logyard.admin.zookeeper.survey import survey
from logyard.admin.zookeeper.znodes import ZnodeClient
from logyard.broker.security import zookeeper_access
from logyard.cli import options
from logyard.cli.options import Json, RequiredZooKeeper, ZkTlsConfig
from logyard.local.errors import LocalError

_SETTLE_MAX_S = 3600

app = typer.Typer(help="Check and secure the znodes of a cluster.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def zk() -> None:
    """Check and secure the znodes of a cluster."""


DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; count the znodes that would be changed.")]


@app.command()
def secure(zookeeper: RequiredZooKeeper, zk_tls_config: ZkTlsConfig = None, dry_run: DryRun = False) -> None:
    """Give every znode of the cluster to the brokers' identity; the world only reads, and reads no secrets.

    Set zookeeper.set.acl=true on all brokers first: what they create after this is secure too. It can be repeated, and
    Kafka's zookeeper-security-migration does the same.

    Example:

    \b
        logyard zk secure --zookeeper localhost:2181 --zk-tls-config-file zookeeper-client.properties --dry-run
        KAFKA_OPTS=-Djava.security.auth.login.config=jaas.conf logyard zk secure --zookeeper localhost:2181/kafka
    """
    _migrate(zookeeper, zk_tls_config, True, dry_run)


@app.command()
def unsecure(zookeeper: RequiredZooKeeper, zk_tls_config: ZkTlsConfig = None, dry_run: DryRun = False) -> None:
    """Open every znode of the cluster to everybody, as before `secure`; set zookeeper.set.acl=false first.

    Example:

    \b
        logyard zk unsecure --zookeeper localhost:2181 --zk-tls-config-file zookeeper-client.properties
    """
    _migrate(zookeeper, zk_tls_config, False, dry_run)


def _migrate(zookeeper: str, zk_tls_config: Path | None, to_secure: bool, dry_run: bool) -> None:
    access = zookeeper_access.of_tool(zk_tls_config)
    if not access.has_identity:
        raise LocalError(
            "this needs the brokers' identity: a certificate by --zk-tls-config-file, or a JAAS file with a section "
            "Client by KAFKA_OPTS=-Djava.security.auth.login.config=FILE"
        )
    with options.ensemble(zookeeper, zk_tls_config) as znodes:
        done = migration.migrate(znodes, to_secure, lambda line: typer.echo(line, err=True), dry_run=dry_run)
    doing = "secure" if to_secure else "open"
    if dry_run:
        typer.echo(f"{done.changed} of {done.seen} znodes are not {doing}")
    else:
        typer.echo(f"{done.changed} znodes are {doing}")


@app.command()
def check(
    zookeeper: RequiredZooKeeper,
    zk_tls_config: ZkTlsConfig = None,
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
    if settle > _SETTLE_MAX_S:
        raise LocalError(f"--settle {settle}: up to {_SETTLE_MAX_S} seconds are expected")
    with options.ensemble(zookeeper, zk_tls_config) as znodes:
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
