"""Hanging transactions: open on a partition, and their coordinator does not know of it, so that nobody ends them.

They hold back the last stable offset of their partition, and with it consumers that read committed records only, and
compaction.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from logyard.admin.cluster.presence import told
from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.admin.transactions.transactions import (
    AbortMarker,
    BadTransactions,
    OpenTransaction,
    Producer,
    Transaction,
    TransactionListing,
)
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import TRANSACTIONS_TOPIC, TopicPartition

_TRIES = 5


class TransactionClient(Protocol):
    """The requests that are needed."""

    def snapshot(self, topics: Sequence[str] | None = None) -> ClusterSnapshot: ...

    def witnessed(self, topics: Sequence[str] | None = None) -> ClusterSnapshot: ...

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
    """All partitions of those topics (None: of all), or those with a replica on that broker.

    Of all topics, the witnesses' list is taken: nobody knows what another broker's may lack. Raises BadTransactions for
    a topic that does not exist; ClusterUnreachable, ApiError where nobody can tell now.
    """
    snapshot = client.witnessed() if topics is None else told(client, topics)
    if snapshot.missing:
        raise BadTransactions(f"there is no topic {snapshot.missing[0]}")
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

    Raises ApiError where not every coordinator can be asked: it may be the one that has decided on one of them, and
    whoever took that for hanging would abort a part of what is committed. The login needs Describe on every
    transactional id: brokers leave out the others.

    :param now_ms: the time now, in ms since 1970; leaders' times are compared with it.
    :param idle_ms: at least the longest time-out that producers have (`transaction.max.timeout.ms`).
    :param broker: ask this broker's replicas instead of the leaders.
    """
    late = [one for one in open_transactions(client, partitions, broker) if now_ms - one.producer.last_ms > idle_ms]
    if not late:
        return []
    for _ in range(_TRIES):
        coordinators = _coordinators(client)
        known = _coordinated(client, {one.producer.producer_id for one in late})
        if _coordinators(client) == coordinators:
            break  # else one of them may have been listed neither here nor there
    else:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinators of transactions are moving: try again")
    left = [one for one in late if not _will_be_ended(one, known.get(one.producer.producer_id))]
    # One that was ended meanwhile is not listed either, and its producer may have begun another.
    still = {_identity(one) for one in open_transactions(client, sorted({one.tp for one in left}), broker)}
    return [one for one in left if _identity(one) in still]


def _coordinators(client: TransactionClient) -> dict[int, tuple[int, int]]:
    """Leader and leader epoch of each partition of the coordinators' topic. Raises ApiError where one is not known."""
    snapshot = client.snapshot([TRANSACTIONS_TOPIC])
    if TRANSACTIONS_TOPIC in snapshot.missing:
        return {}
    found = snapshot.topics.get(TRANSACTIONS_TOPIC)
    if found is None:
        raise ApiError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"{TRANSACTIONS_TOPIC} cannot be described, so it is unknown whether every coordinator was asked",
        )
    unled = [p.partition for p in found.partitions if p.leader not in snapshot.brokers]
    if unled:
        raise ApiError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"partition {unled[0]} of {TRANSACTIONS_TOPIC} has no leader: its transactions cannot be asked for",
        )
    return {p.partition: (p.leader, p.leader_epoch) for p in found.partitions}


def _coordinated(client: TransactionClient, producer_ids: set[int]) -> dict[int, Transaction]:
    """What coordinators know of the transactions of these producers."""
    names = {one.producer_id: one.transactional_id for one in client.list_transactions(sorted(producer_ids))}
    described = {name: client.describe_transaction(name) for name in sorted(set(names.values()))}
    return {producer_id: found for producer_id, name in names.items() if (found := described[name]) is not None}


def _identity(one: OpenTransaction) -> tuple[TopicPartition, int, int, int | None]:
    return one.tp, one.producer.producer_id, one.producer.epoch, one.producer.start_offset


def _will_be_ended(found: OpenTransaction, coordinated: Transaction | None) -> bool:
    """Whether the coordinator still has to write a marker to that partition, for that producer."""
    return coordinated is not None and found.tp in coordinated.partitions


def find_open(client: TransactionClient, tp: TopicPartition, start_offset: int) -> OpenTransaction:
    """The open transaction that begins at that offset. Raises BadTransactions, ApiError."""
    for one in open_transactions(client, [tp]):
        if one.producer.start_offset == start_offset:
            return one
    raise BadTransactions(f"Could not find any open transactions starting at offset {start_offset} on partition {tp}")
