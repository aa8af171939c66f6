"""`logyard features`: the commands of kafka-features.sh."""

from typing import Annotated

import typer

from logyard.admin.cluster import features as text
from logyard.admin.cluster.features import Kind
from logyard.cli import options
from logyard.cli.options import CommandConfig, RequiredBootstrap
from logyard.local.errors import LocalError

app = typer.Typer(
    help="Show the features of a cluster, and the levels that it uses.", no_args_is_help=True, rich_markup_mode=None
)

Levels = Annotated[
    list[str], typer.Option("--feature", help="name=level, as transaction.version=2; may be given several times.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only check whether it could be done.")]


@app.command()
def describe(bootstrap_server: RequiredBootstrap, command_config_file: CommandConfig = None) -> None:
    """Print the features that the broker supports, and the level that the whole cluster uses (0: none).

    Example:

    \b
        logyard features describe --bootstrap-server localhost:9092
    """
    with options.requests(bootstrap_server, command_config_file) as sender:
        for line in text.description(sender.features()):
            typer.echo(line)


@app.command()
def upgrade(
    bootstrap_server: RequiredBootstrap,
    feature: Levels,
    dry_run: DryRun = False,
    command_config_file: CommandConfig = None,
) -> None:
    """Have the whole cluster use a higher level. Every broker has to support it.

    transaction.version=2 gives each transaction an epoch of its own, so that nothing late of one reaches another; no
    broker of Apache Kafka 3.9 can join the cluster from then on.

    Example:

    \b
        logyard features upgrade --bootstrap-server localhost:9092 --feature transaction.version=2
    """
    _update("upgrade", Kind.UPGRADE, bootstrap_server, feature, dry_run, command_config_file)


@app.command()
def downgrade(
    bootstrap_server: RequiredBootstrap,
    feature: Levels,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Even if that may destroy metadata.")] = False,
    dry_run: DryRun = False,
    command_config_file: CommandConfig = None,
) -> None:
    """Have the whole cluster use a lower level; 0 for none, which brokers of Apache Kafka 3.9 need.

    Example:

    \b
        logyard features downgrade --bootstrap-server localhost:9092 --feature transaction.version=0
    """
    kind = Kind.UNSAFE_DOWNGRADE if unsafe else Kind.SAFE_DOWNGRADE
    _update("downgrade", kind, bootstrap_server, feature, dry_run, command_config_file)


def _update(
    verb: str, kind: Kind, bootstrap: str, words: list[str], dry_run: bool, command_config_file: CommandConfig
) -> None:
    levels = text.parse(words)
    with options.requests(bootstrap, command_config_file) as sender:
        problems = sender.update_features(levels, kind, validate_only=dry_run)
    for line in text.outcome(verb, levels, problems, dry_run=dry_run):
        typer.echo(line)
    failed = sum(problem is not None for problem in problems.values())
    if failed:
        raise LocalError(f"{failed} out of {len(problems)} operation(s) failed.")
