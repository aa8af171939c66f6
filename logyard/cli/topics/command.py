"""`logyard topics`: the commands of kafka-topics.sh, by the brokers or straight into ZooKeeper."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Protocol

import typer

from logyard.admin.cluster.snapshot import NewTopic
from logyard.cli import command_config, options
from logyard.cli.cluster import parse_config
from logyard.cli.options import Bootstrap, CommandConfig, ZkTlsConfig, ZooKeeper, one_way
from logyard.cli.topics.text import (
    COLLISION_WARNING,
    Report,
    TopicLines,
    matching,
    parse_assignment,
)
from logyard.cli.topics.text import (
    describe as described,
)
from logyard.local.errors import LocalError

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True, rich_markup_mode=None)

Topic = Annotated[str, typer.Option("--topic", help="The topic's name.")]
Pattern = Annotated[
    str, typer.Option("--topic", help="A name, or a regular expression for whole names; a comma means or.")
]
MaybePattern = Annotated[
    str | None, typer.Option("--topic", help="A name, or a regular expression for whole names; default: all.")
]
Partitions = Annotated[int | None, typer.Option("--partitions", help="How many partitions.")]
Assignment = Annotated[
    str | None, typer.Option("--replica-assignment", help="Replicas by hand, such as 0:1,1:2 for two partitions.")
]
Config = Annotated[list[str] | None, typer.Option("--config", help="key=value for the topic; repeatable.")]
ExcludeInternal = Annotated[bool, typer.Option("--exclude-internal", help="Leave out the internal topics.")]
IfExists = Annotated[bool, typer.Option("--if-exists", help="Do nothing if there is no such topic.")]


class Topics(Protocol):
    """What both ways offer; methods that change something return the lines to print."""

    def names(self) -> list[str]: ...

    def live(self) -> list[int]: ...

    def lines(self, names: Sequence[str]) -> list[TopicLines]: ...

    def create(self, topic: NewTopic, *, if_not_exists: bool) -> list[str]: ...

    def add_partitions(self, name: str, total: int, assignment: Mapping[int, Sequence[int]] | None) -> list[str]: ...

    def alter_configs(self, name: str, values: Mapping[str, str], delete: Sequence[str]) -> list[str]: ...

    def delete(self, name: str) -> list[str]: ...

    def close(self) -> None: ...


@app.command()
def create(
    topic: Topic,
    bootstrap_server: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    partitions: Partitions = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", help="How many replicas of each partition.")
    ] = None,
    replica_assignment: Assignment = None,
    config: Config = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing if the topic already exists.")
    ] = False,
    command_config_file: CommandConfig = None,
    zk_tls_config: ZkTlsConfig = None,
) -> None:
    """Create a topic; numbers that are not given are the brokers' defaults.

    Example:

    \b
        logyard topics create --bootstrap-server localhost:9092 --topic flights --partitions 6 --replication-factor 3
        logyard topics create --zookeeper localhost:2181 --topic t --replica-assignment 0:1,1:2
    """
    if replica_assignment is not None and (partitions is not None or replication_factor is not None):
        raise LocalError("--replica-assignment excludes --partitions and --replication-factor")
    if partitions is not None and partitions < 1:
        raise LocalError("The partitions must be greater than 0")
    if replication_factor is not None and not 1 <= replication_factor <= 32767:
        raise LocalError("The replication factor must be between 1 and 32767 inclusive")
    assignment = parse_assignment(replica_assignment) if replica_assignment is not None else None
    wanted = NewTopic(
        name=topic,
        partitions=partitions if partitions is not None else -1,
        replication_factor=replication_factor if replication_factor is not None else -1,
        configs=parse_config(config or []),
        assignment=assignment,
    )
    with _open(bootstrap_server, zookeeper, command_config_file, zk_tls_config) as topics:
        if "." in topic or "_" in topic:
            typer.echo(COLLISION_WARNING)
        _print(topics.create(wanted, if_not_exists=if_not_exists))


@app.command("list")
def list_(
    bootstrap_server: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    topic: MaybePattern = None,
    exclude_internal: ExcludeInternal = False,
    command_config_file: CommandConfig = None,
    zk_tls_config: ZkTlsConfig = None,
) -> None:
    """Print the names of topics, one per line.

    Example:

    \b
        logyard topics list --bootstrap-server localhost:9092 --exclude-internal
    """
    with _open(bootstrap_server, zookeeper, command_config_file, zk_tls_config) as topics:
        _print(matching(topic, topics.names(), exclude_internal=exclude_internal))


@app.command()
def describe(
    bootstrap_server: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    topic: MaybePattern = None,
    exclude_internal: ExcludeInternal = False,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated-partitions", help="Only partitions whose ISR lacks a replica.")
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable-partitions", help="Only partitions without a live leader.")
    ] = False,
    under_min_isr: Annotated[
        bool,
        typer.Option("--under-min-isr-partitions", help="Only partitions below min.insync.replicas."),
    ] = False,
    at_min_isr: Annotated[
        bool, typer.Option("--at-min-isr-partitions", help="Only partitions at min.insync.replicas.")
    ] = False,
    overrides: Annotated[
        bool, typer.Option("--topics-with-overrides", help="Only topics that have settings, one line each.")
    ] = False,
    if_exists: IfExists = False,
    command_config_file: CommandConfig = None,
    zk_tls_config: ZkTlsConfig = None,
) -> None:
    """Show topics, their settings and where their replicas are.

    Example:

    \b
        logyard topics describe --bootstrap-server localhost:9092 --topic flights
        logyard topics describe --bootstrap-server localhost:9092 --under-replicated-partitions
    """
    asked = {
        Report.UNDER_REPLICATED: under_replicated,
        Report.UNAVAILABLE: unavailable,
        Report.UNDER_MIN_ISR: under_min_isr,
        Report.AT_MIN_ISR: at_min_isr,
        Report.OVERRIDES: overrides,
    }
    chosen = [report for report, wanted in asked.items() if wanted]
    if len(chosen) > 1:
        raise LocalError(f"describe {' and '.join(one.value for one in chosen)}: give only one of these")
    report = chosen[0] if chosen else Report.ALL
    with _open(bootstrap_server, zookeeper, command_config_file, zk_tls_config) as topics:
        names = _existing(topics, topic, if_exists, exclude_internal)
        _print(described(topics.lines(names), report, topics.live()))


@app.command()
def alter(
    topic: Pattern,
    bootstrap_server: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    partitions: Partitions = None,
    replica_assignment: Assignment = None,
    config: Config = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", help="A key to reset to its default; repeatable.")
    ] = None,
    if_exists: IfExists = False,
    command_config_file: CommandConfig = None,
    zk_tls_config: ZkTlsConfig = None,
) -> None:
    """Add partitions to topics, or change their settings.

    Example:

    \b
        logyard topics alter --bootstrap-server localhost:9092 --topic flights --partitions 12
        logyard topics alter --bootstrap-server localhost:9092 --topic flights --config retention.ms=3600000
    """
    if partitions is None and not config and not delete_config:
        raise LocalError("nothing to alter: give --partitions, --config or --delete-config")
    if replica_assignment is not None and partitions is None:
        raise LocalError("--replica-assignment places new partitions: give --partitions too")
    assignment = parse_assignment(replica_assignment) if replica_assignment is not None else None
    values = parse_config(config or [])
    with _open(bootstrap_server, zookeeper, command_config_file, zk_tls_config) as topics:
        for name in _existing(topics, topic, if_exists):
            if values or delete_config:
                _print(topics.alter_configs(name, values, delete_config or []))
            if partitions is not None:
                _print(topics.add_partitions(name, partitions, assignment))


@app.command()
def delete(
    topic: Pattern,
    bootstrap_server: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    if_exists: IfExists = False,
    command_config_file: CommandConfig = None,
    zk_tls_config: ZkTlsConfig = None,
) -> None:
    """Delete topics and all their records.

    Example:

    \b
        logyard topics delete --bootstrap-server localhost:9092 --topic flights
    """
    with _open(bootstrap_server, zookeeper, command_config_file, zk_tls_config) as topics:
        for name in _existing(topics, topic, if_exists):
            _print(topics.delete(name))


@contextmanager
def _open(
    bootstrap: str | None, zookeeper: str | None, config_file: Path | None, zk_tls_config: Path | None
) -> Iterator[Topics]:
    one_way(bootstrap, zookeeper, config_file)
    if zookeeper is not None:
        from logyard.cli.topics.zookeeper import ZooKeeperTopics

        with options.ensemble(zookeeper, zk_tls_config) as znodes:
            yield ZooKeeperTopics(znodes)
        return
    from logyard.cli.topics.brokers import BrokerTopics

    topics = BrokerTopics(command_config.settings(bootstrap or "", options.properties(config_file)))
    try:
        yield topics
    finally:
        topics.close()


def _existing(topics: Topics, pattern: str | None, if_exists: bool, exclude_internal: bool = False) -> list[str]:
    found = matching(pattern, topics.names(), exclude_internal=exclude_internal)
    if not found and pattern is not None and not if_exists:
        raise LocalError(f"Topic '{pattern}' does not exist as expected")
    return found


def _print(lines: Sequence[str]) -> None:
    for line in lines:
        typer.echo(line)
