"""`logyard reassign`: the commands of kafka-reassign-partitions.sh, by the brokers or by ZooKeeper."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from logyard.admin.reassignment import command, json_files, status
from logyard.admin.reassignment.ending import ReassignmentClient
from logyard.admin.reassignment.proposal import propose
from logyard.admin.zookeeper.cluster_client import ZooKeeperClusterClient
from logyard.cli import options, throttle_records
from logyard.cli.options import Bootstrap, CommandConfig, ZkTlsConfig, ZooKeeper
from logyard.local import interrupts
from logyard.local.errors import LocalError

app = typer.Typer(help="Move replicas between brokers and directories.", no_args_is_help=True, rich_markup_mode=None)

_WAITED = "the move and its throttle continue: verify again until the move is done, or cancel it"
_STARTED = "`logyard reassign list` shows what moves; a throttle remains only if something moves"

TargetsFile = Annotated[
    Path, typer.Option("--reassignment-json-file", help="Target replicas of partitions, as `generate` prints them.")
]
Preserve = Annotated[bool, typer.Option("--preserve-throttles", help="Keep the throttles of topics and brokers.")]
Timeout = Annotated[
    int, typer.Option("--timeout", min=0, help="How long to try to start moves between directories, in milliseconds.")
]


@app.command()
def generate(
    topics_file: Annotated[
        Path, typer.Option("--topics-to-move-json-file", help='{"version":1,"topics":[{"topic":"flights"}]}')
    ],
    broker_list: Annotated[
        str, typer.Option("--broker-list", help="Brokers that may hold the replicas, such as 0,1,2.")
    ],
    bootstrap_server: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    disable_rack_aware: Annotated[bool, typer.Option("--disable-rack-aware", help="Ignore racks.")] = False,
    minimal: Annotated[
        bool, typer.Option("--minimal", help="Move only what has to move; Kafka's tool places all replicas anew.")
    ] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the random choices, to repeat them.")] = None,
    command_config_file: CommandConfig = None,
    zk_tls_config: ZkTlsConfig = None,
) -> None:
    """Propose a placement for the replicas of topics; nothing is moved.

    Example:

    \b
        logyard reassign generate --bootstrap-server localhost:9092 --topics-to-move-json-file topics.json \\
            --broker-list 0,1,2 --minimal
    """
    topics = options.parse_file("--topics-to-move-json-file", topics_file, json_files.parse_topics)
    brokers = json_files.parse_brokers(broker_list)
    with _open(bootstrap_server, zookeeper, command_config_file, zk_tls_config) as client:
        current, proposed = propose(
            client,
            topics,
            brokers,
            rack_aware=not disable_rack_aware,
            minimal=minimal,
            chance=random.Random(seed),
        )
    typer.echo(f"Current partition replica assignment\n{json_files.render(current)}\n")
    typer.echo(f"Proposed partition reassignment configuration\n{json_files.render(proposed)}")
    if not proposed:
        _tell("nothing has to move")


@app.command()
def execute(
    targets_file: TargetsFile,
    bootstrap_server: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    additional: Annotated[
        bool,
        typer.Option(
            "--additional", help="Start although other reassignments run; also changes the throttle of a running one."
        ),
    ] = False,
    throttle: Annotated[
        int, typer.Option("--throttle", min=-1, help="Bytes per second between brokers; -1: no limit.")
    ] = -1,
    log_dir_throttle: Annotated[
        int,
        typer.Option(
            "--replica-alter-log-dirs-throttle", min=-1, help="Bytes per second between the directories of a broker."
        ),
    ] = -1,
    timeout: Timeout = 10_000,
    command_config_file: CommandConfig = None,
    zk_tls_config: ZkTlsConfig = None,
) -> None:
    """Start moving replicas; prints the current replicas, for a rollback. A throttle stays until `verify` ends it.

    Example:

    \b
        logyard reassign execute --bootstrap-server localhost:9092 --reassignment-json-file plan.json \\
            --throttle 50000000
    """
    text = _checked(targets_file, json_files.parse_execution)
    with (
        _open(bootstrap_server, zookeeper, command_config_file, zk_tls_config) as client,
        _told_when_interrupted(_STARTED),
    ):
        command.execute(
            client,
            text,
            additional=additional,
            throttle=throttle,
            log_dir_throttle=log_dir_throttle,
            timeout_s=timeout / 1000,
            owner=throttle_records.this_run(),
            pause=options.connector.pause(),
            say=typer.echo,
        )


@app.command()
def verify(
    targets_file: TargetsFile,
    bootstrap_server: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    preserve_throttles: Preserve = False,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait", help="Wait until nothing moves; the exit status is 1 unless every replica is in place then."
        ),
    ] = False,
    command_config_file: CommandConfig = None,
    zk_tls_config: ZkTlsConfig = None,
) -> None:
    """Show the progress of a reassignment; when nothing moves any more, remove the throttles.

    Example:

    \b
        logyard reassign verify --bootstrap-server localhost:9092 --reassignment-json-file plan.json --wait
    """
    text = _checked(targets_file, json_files.parse_targets)
    with _open(bootstrap_server, zookeeper, command_config_file, zk_tls_config) as client:
        if wait:
            with _told_when_interrupted(_WAITED):
                command.await_end(client, text, pause=options.connector.pause(), tell=_tell)
        as_wanted = command.verify(
            client,
            text,
            preserve_throttles=preserve_throttles,
            owner=throttle_records.this_run(),
            pause=options.connector.pause(),
            say=typer.echo,
        )
    if wait and not as_wanted:
        raise LocalError("not every replica is in place: see above, and execute again")


@app.command()
def cancel(
    targets_file: TargetsFile,
    bootstrap_server: Bootstrap = None,
    preserve_throttles: Preserve = False,
    force: Annotated[
        bool, typer.Option("--force", help="Cancel even if no former replica is alive and in sync.")
    ] = False,
    timeout: Timeout = 10_000,
    command_config_file: CommandConfig = None,
) -> None:
    """Cancel the moves in a file: partitions go back to their former replicas. Removes the throttles.

    Example:

    \b
        logyard reassign cancel --bootstrap-server localhost:9092 --reassignment-json-file plan.json
    """
    text = _checked(targets_file, json_files.parse_targets)
    with _open(bootstrap_server, None, command_config_file) as client:
        command.cancel(
            client,
            text,
            preserve_throttles=preserve_throttles,
            force=force,
            timeout_s=timeout / 1000,
            owner=throttle_records.this_run(),
            pause=options.connector.pause(),
            say=typer.echo,
            say_on=lambda said: typer.echo(said, nl=False),
        )


@app.command("list")
def list_(
    bootstrap_server: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    command_config_file: CommandConfig = None,
    zk_tls_config: ZkTlsConfig = None,
) -> None:
    """Show every running reassignment.

    Example:

    \b
        logyard reassign list --bootstrap-server localhost:9092
    """
    with _open(bootstrap_server, zookeeper, command_config_file, zk_tls_config) as client:
        typer.echo(status.running_text(client.list_reassignments()))


def _checked(targets_file: Path, parse: Callable[[str], object]) -> str:
    """The text of a file that `parse` takes. Raises LocalError, before any broker is asked."""

    def checked(text: str) -> str:
        parse(text)
        return text

    return options.parse_file("--reassignment-json-file", targets_file, checked)


@contextmanager
def _told_when_interrupted(what: str) -> Iterator[None]:
    """On a signal, print what continues without this process."""
    try:
        yield
    except interrupts.Interrupted as interrupt:
        _tell(f"interrupted by {interrupt}: {what}")
        raise typer.Exit(128 + interrupt.number) from None


@contextmanager
def _open(
    bootstrap: str | None, zookeeper: str | None, config_file: Path | None, zk_tls_config: Path | None = None
) -> Iterator[ReassignmentClient]:
    options.one_way(bootstrap, zookeeper, config_file)
    if zookeeper is not None:
        with options.ensemble(zookeeper, zk_tls_config) as znodes:
            yield ZooKeeperClusterClient(znodes)
    else:
        with options.cluster(bootstrap or "", config_file) as client:
            yield client


def _tell(text: str) -> None:
    typer.echo(text, err=True)
