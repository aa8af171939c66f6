"""`logyard leaders`: the command of kafka-leader-election.sh, by the brokers or by ZooKeeper."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from logyard.admin.cluster import elections
from logyard.admin.zookeeper.cluster_client import ZooKeeperClusterClient
from logyard.broker.model import TopicPartition
from logyard.cli import options
from logyard.cli.options import Bootstrap, CommandConfig, ZkTlsConfig, ZooKeeper
from logyard.local.errors import LocalError

app = typer.Typer(help="Elect the leaders of partitions.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def leaders() -> None:
    """Elect the leaders of partitions."""


class ElectionType(str, Enum):
    """Which replica becomes leader."""

    __str__ = str.__str__

    PREFERRED = elections.PREFERRED
    UNCLEAN = elections.UNCLEAN


@app.command()
def elect(
    election_type: Annotated[
        ElectionType,
        typer.Option(
            "--election-type",
            case_sensitive=False,
            help="preferred: the first replica, if it is in sync; unclean: any live replica of a partition without "
            "a leader, which may lose records.",
        ),
    ],
    bootstrap_server: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    topic: Annotated[str | None, typer.Option("--topic", help="One partition of this topic.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Its number.")] = None,
    path: Annotated[
        Path | None,
        typer.Option("--path-to-json-file", help='{"partitions":[{"topic":"flights","partition":0}]}'),
    ] = None,
    everything: Annotated[bool, typer.Option("--all-topic-partitions", help="All partitions that need it.")] = False,
    command_config_file: CommandConfig = None,
    zk_tls_config: ZkTlsConfig = None,
) -> None:
    """Elect leaders; prints for which partitions the election was done, not needed or refused.

    Example:

    \b
        logyard leaders elect --bootstrap-server localhost:9092 --election-type preferred --all-topic-partitions
        logyard leaders elect --bootstrap-server localhost:9092 --election-type unclean --topic flights --partition 0
    """
    wanted = _wanted(topic, partition, path, everything)
    options.one_way(bootstrap_server, zookeeper, command_config_file)
    if zookeeper is not None:
        with options.ensemble(zookeeper, zk_tls_config) as znodes:
            asked = ZooKeeperClusterClient(znodes).elect_leaders(wanted, unclean=election_type is ElectionType.UNCLEAN)
        names = ", ".join(map(str, sorted(asked)))
        typer.echo(f"Successfully asked for leader election (PREFERRED) of partitions {names}")
        return
    with options.cluster(bootstrap_server or "", command_config_file) as client:
        outcome = elections.elect(client, wanted, election_type.value)
    for line in outcome.lines:
        typer.echo(line)
    if outcome.refused:
        raise LocalError(f"{len(outcome.refused)} replica(s) could not be elected")


def _wanted(
    topic: str | None, partition: int | None, path: Path | None, everything: bool
) -> list[TopicPartition] | None:
    if sum((topic is not None, path is not None, everything)) != 1:
        raise LocalError(
            "One and only one of the following options is required: topic, all-topic-partitions, path-to-json-file"
        )
    if topic is not None:
        if partition is None:
            raise LocalError("Missing required option(s): partition")
        return [TopicPartition(topic, partition)]
    if partition is not None:
        raise LocalError("Option partition is only allowed if topic is used")
    return None if path is None else options.parse_file("--path-to-json-file", path, elections.parse_partitions)
