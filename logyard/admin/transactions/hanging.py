"""Hanging transactions: open on a partition, and their coordinator does not know of it, so that nobody ends them.

They hold back the last stable offset of their partition, and with it consumers that read committed records only, and
compaction.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.admin.transactions.transactions import (
    AbortMarker,
    BadTransactions,
    OpenTransaction,
    Producer,
    Transaction,
    TransactionListing,
)
from logyard.broker.errors import ApiError
from logyard.broker.model import TopicPartition


class TransactionClient(Protocol):
    """The requests that are needed."""

    def snapshot(self, topics: Sequence[str] | None = None) -> ClusterSnapshot: ...

    def list_transactions(
        self, producer_ids: Iterable[int] = (), duration_ms: int | None = None
    ) -> list[TransactionListing]:
        """Every broker's transactional ids, or those of some producers, or with a transaction open for longer."""
        ...

    def describe_transaction(self, transactional_id: str) -> Transaction | None:
        """One transactional id; None where its coordinator does not know it."""
        ...

    def describe_producers(
        self, partitions: Sequence[TopicPartition], broker: int | None = None
    ) -> Mapping[TopicPartition, tuple[Producer, ...] | ApiError]:
        """The producers of partitions, as their leaders know them, or as that broker's replicas do."""
        ...

    def write_abort_marker(self, marker: AbortMarker) -> None:
        """End a transaction on one partition."""
        ...


def partitions_to_search(
    client: TransactionClient, topics: Sequence[str] | None, broker: int | None
) -> list[TopicPartition]:
    """All partitions of those topics (None: of all), or those with a replica on that broker. Raises BadTransactions."""
    snapshot = client.snapshot(topics)
    missing = sorted(set(topics or ()) - set(snapshot.topics))
    if missing:
        raise BadTransactions(f"there is no topic {missing[0]}")
    return [tp for tp, view in snapshot.partitions() if broker is None or broker in view.replicas]


def open_transactions(
    client: TransactionClient, partitions: Sequence[TopicPartition], broker: int | None = None
) -> list[OpenTransaction]:
    """Every open transaction on those partitions. Raises ApiError for the first partition that cannot be described."""
    found = []
    for tp, producers in client.describe_producers(partitions, broker).items():
        if isinstance(producers, ApiError):
            raise ApiError(producers.code, f"{tp}: {producers}")
        found += [OpenTransaction(tp, producer) for producer in producers if producer.start_offset is not None]
    return sorted(found, key=lambda one: (one.tp, one.producer.producer_id))


def find_hanging(
    client: TransactionClient,
    partitions: Sequence[TopicPartition],
    *,
    now_ms: int,
    idle_ms: int,
    broker: int | None = None,
) -> list[OpenTransaction]:
    """Those that nothing was written to for longer than `idle_ms` and that no coordinator will end.

    :param now_ms: the time now, in ms since 1970; leaders' times are compared with it.
    :param idle_ms: at least the longest time-out that producers have (`transaction.max.timeout.ms`).
    :param broker: ask this broker's replicas instead of the leaders.
    """
    late = [one for one in open_transactions(client, partitions, broker) if now_ms - one.producer.last_ms > idle_ms]
    if not late:
        return []
    wanted = sorted({one.producer.producer_id for one in late})
    ids = {one.producer_id: one.transactional_id for one in client.list_transactions(wanted)}
    known = {name: client.describe_transaction(name) for name in sorted({ids[pid] for pid in wanted if pid in ids})}
    return [one for one in late if not _will_be_ended(one, known.get(ids.get(one.producer.producer_id, "")))]


def _will_be_ended(found: OpenTransaction, coordinated: Transaction | None) -> bool:
    """Whether the coordinator still has to write a marker to that partition, for that producer."""
    return coordinated is not None and found.tp in coordinated.partitions


def find_open(client: TransactionClient, tp: TopicPartition, start_offset: int) -> OpenTransaction:
    """The open transaction that begins at that offset. Raises BadTransactions, ApiError."""
    for one in open_transactions(client, [tp]):
        if one.producer.start_offset == start_offset:
            return one
    raise BadTransactions(f"Could not find any open transactions starting at offset {start_offset} on partition {tp}")
