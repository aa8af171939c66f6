"""`logyard transactions`: the commands of kafka-transactions.sh."""

import time
from collections.abc import Iterable
from typing import Annotated

import typer

from logyard.admin.transactions import hanging
from logyard.admin.transactions import transactions as text
from logyard.admin.transactions.transactions import AbortMarker
from logyard.broker.errors import ApiError
from logyard.broker.model import TopicPartition
from logyard.cli import options
from logyard.cli.options import CommandConfig, RequiredBootstrap
from logyard.local.errors import LocalError

app = typer.Typer(help="Show transactions, and end those that hang.", no_args_is_help=True, rich_markup_mode=None)

Topic = Annotated[str, typer.Option("--topic", help="The topic's name.")]
Partition = Annotated[int, typer.Option("--partition", min=0, help="The partition's number.")]


@app.command("list")
def list_(
    bootstrap_server: RequiredBootstrap,
    duration_filter: Annotated[
        int | None,
        typer.Option(
            "--duration-filter",
            help="Only transactional ids whose transaction is open for more milliseconds; below 0: all.",
        ),
    ] = None,
    command_config_file: CommandConfig = None,
) -> None:
    """Print the transactional ids of all coordinators.

    Example:

    \b
        logyard transactions list --bootstrap-server localhost:9092
        logyard transactions list --bootstrap-server localhost:9092 --duration-filter 60000
    """
    with options.requests(bootstrap_server, command_config_file) as sender:
        _print(text.listing_table(sender.list_transactions((), duration_filter)))


@app.command()
def describe(
    bootstrap_server: RequiredBootstrap,
    transactional_id: Annotated[str, typer.Option("--transactional-id", help="The producer's transactional.id.")],
    command_config_file: CommandConfig = None,
) -> None:
    """Print the state of one transactional id, and the partitions of its transaction.

    Example:

    \b
        logyard transactions describe --bootstrap-server localhost:9092 --transactional-id payments
    """
    with options.requests(bootstrap_server, command_config_file) as sender:
        found = sender.describe_transaction(transactional_id)
    if found is None:
        raise LocalError(f"there is no transactional id `{transactional_id}`")
    _print(text.transaction_table(found, _now_ms()))


@app.command("describe-producers")
def describe_producers(
    bootstrap_server: RequiredBootstrap,
    topic: Topic,
    partition: Partition,
    broker_id: Annotated[
        int | None, typer.Option("--broker-id", help="Ask this broker's replica instead of the leader.")
    ] = None,
    command_config_file: CommandConfig = None,
) -> None:
    """Print the producers of a partition, and where their open transactions begin.

    Example:

    \b
        logyard transactions describe-producers --bootstrap-server localhost:9092 --topic flights --partition 0
    """
    tp = TopicPartition(topic, partition)
    with options.requests(bootstrap_server, command_config_file) as sender:
        found = sender.describe_producers([tp], broker_id)[tp]
    if isinstance(found, ApiError):
        where = "leader" if broker_id is None else f"broker {broker_id}"
        raise LocalError(f"Failed to describe producers for partition {tp} on {where}: {found}")
    _print(text.producers_table(found))


@app.command("find-hanging")
def find_hanging(
    bootstrap_server: RequiredBootstrap,
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Only this one, with --topic.")] = None,
    broker_id: Annotated[
        int | None, typer.Option("--broker-id", help="Only partitions with a replica on this broker, which is asked.")
    ] = None,
    max_transaction_timeout: Annotated[
        int,
        typer.Option(
            "--max-transaction-timeout",
            min=0,
            help="Minutes for which nothing was written; at least the brokers' transaction.max.timeout.ms.",
        ),
    ] = 15,
    command_config_file: CommandConfig = None,
) -> None:
    """Print transactions that are open on a partition and that no coordinator will end.

    They hold back consumers that read committed records only; `logyard transactions abort` ends them.

    Example:

    \b
        logyard transactions find-hanging --bootstrap-server localhost:9092 --topic flights
        logyard transactions find-hanging --bootstrap-server localhost:9092 --broker-id 1
    """
    if topic is None and broker_id is None:
        raise LocalError("give --topic or --broker-id: a search through the whole cluster would be long")
    if partition is not None and topic is None:
        raise LocalError("--partition needs --topic")
    with options.requests(bootstrap_server, command_config_file) as sender:
        if topic is not None and partition is not None:
            searched = [TopicPartition(topic, partition)]
        else:
            searched = hanging.partitions_to_search(sender, None if topic is None else [topic], broker_id)
        idle_ms, now_ms = max_transaction_timeout * 60_000, _now_ms()
        found = hanging.find_hanging(sender, searched, now_ms=now_ms, idle_ms=idle_ms, broker=broker_id)
    _print(text.hanging_table(found, now_ms))


@app.command()
def abort(
    bootstrap_server: RequiredBootstrap,
    topic: Topic,
    partition: Partition,
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", help="Where the transaction begins; the brokers tell the rest.")
    ] = None,
    producer_id: Annotated[int | None, typer.Option("--producer-id", help="For brokers before 3.0.")] = None,
    producer_epoch: Annotated[int | None, typer.Option("--producer-epoch", help="With --producer-id.")] = None,
    coordinator_epoch: Annotated[int | None, typer.Option("--coordinator-epoch", help="With --producer-id.")] = None,
    command_config_file: CommandConfig = None,
) -> None:
    """End a hanging transaction on one partition: its leader writes that it was aborted.

    Do this only to what find-hanging shows: the records of a transaction that is still coordinated would be lost on
    this partition, and kept on others.

    Example:

    \b
        logyard transactions abort --bootstrap-server localhost:9092 --topic flights --partition 0 --start-offset 1024
    """
    tp = TopicPartition(topic, partition)
    if start_offset is None and producer_id is None:
        raise LocalError("give --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch")
    with options.requests(bootstrap_server, command_config_file) as sender:
        if start_offset is not None:
            marker = AbortMarker.of(hanging.find_open(sender, tp, start_offset))
        elif producer_id is None or producer_epoch is None or coordinator_epoch is None:
            raise LocalError("--producer-id needs --producer-epoch and --coordinator-epoch")
        else:
            marker = AbortMarker(tp, producer_id, producer_epoch, max(coordinator_epoch, 0))
        sender.write_abort_marker(marker)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)
