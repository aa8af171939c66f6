"""Transactions as kafka-transactions shows them: values, and tables of them. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from logyard.broker.errors import LogyardError
from logyard.broker.model import TopicPartition

NONE = "None"


class BadTransactions(LogyardError):
    """The request about transactions cannot be carried out; the text says why."""


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """One transactional id, as its coordinator lists it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transactional id. `start_ms`: when its transaction began, in ms since 1970; None: none is open.

    `partitions`: those of the transaction; while it is being ended, those that have no marker yet.
    """

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Producer:
    """A producer as a partition's replica knows it.

    `last_ms`: of its last batch, in ms since 1970; `start_offset`: of its open transaction, None without one;
    `coordinator_epoch`: of the last marker, -1 before the first.
    """

    producer_id: int
    epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_ms: int
    start_offset: int | None


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A producer's open transaction on one partition."""

    tp: TopicPartition
    producer: Producer


@dataclass(frozen=True, slots=True)
class AbortMarker:
    """What ends a producer's transaction on one partition, whatever its coordinator knows."""

    tp: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int

    @classmethod
    def of(cls, found: OpenTransaction) -> "AbortMarker":
        """Before the first marker no coordinator's epoch is known: 0 is older than any, and is taken."""
        producer = found.producer
        return cls(found.tp, producer.producer_id, producer.epoch, max(producer.coordinator_epoch, 0))


def listing_table(found: Iterable[TransactionListing]) -> list[str]:
    head = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
    return _table(head, [(t.transactional_id, str(t.coordinator), str(t.producer_id), t.state) for t in found])


def transaction_table(found: Transaction, now_ms: int) -> list[str]:
    head = (
        "CoordinatorId",
        "TransactionalId",
        "ProducerId",
        "ProducerEpoch",
        "TransactionState",
        "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs",
        "TransactionDurationMs",
        "TopicPartitions",
    )
    times = (NONE, NONE) if found.start_ms is None else (str(found.start_ms), str(now_ms - found.start_ms))
    row = (
        str(found.coordinator),
        found.transactional_id,
        str(found.producer_id),
        str(found.producer_epoch),
        found.state,
        str(found.timeout_ms),
        *times,
        ",".join(str(tp) for tp in found.partitions),
    )
    return _table(head, [row])


def producers_table(found: Iterable[Producer]) -> list[str]:
    head = (
        "ProducerId",
        "ProducerEpoch",
        "LatestCoordinatorEpoch",
        "LastSequence",
        "LastTimestamp",
        "CurrentTransactionStartOffset",
    )
    numbers = [(p.producer_id, p.epoch, p.coordinator_epoch, p.last_sequence, p.last_ms, p.start_offset) for p in found]
    return _table(head, [tuple(NONE if n is None else str(n) for n in row) for row in numbers])


def hanging_table(found: Iterable[OpenTransaction], now_ms: int) -> list[str]:
    head = (
        "Topic",
        "Partition",
        "ProducerId",
        "ProducerEpoch",
        "CoordinatorEpoch",
        "StartOffset",
        "LastTimestamp",
        "Duration(min)",
    )
    rows = []
    for one in found:
        p = one.producer
        numbers = (
            p.producer_id,
            p.epoch,
            p.coordinator_epoch,
            p.start_offset,
            p.last_ms,
            (now_ms - p.last_ms) // 60_000,
        )
        rows.append((one.tp.topic, str(one.tp.partition), *map(str, numbers)))
    return _table(head, rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Every column is as wide as its longest cell, and ends with a tab."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return ["".join(f"{c.ljust(w)}\t" for c, w in zip(row, widths, strict=True)) for row in (head, *rows)]
