"""The open transactions of a topic, and which of them hold back what readers of committed records see."""

from collections.abc import Sequence
from dataclasses import dataclass

from logyard.admin.errors import ApiError
from logyard.admin.ports import DescribingClient
from logyard.admin.transactions.transactions import OpenTransaction, Transaction
from logyard.broker.model import TopicPartition

# A coordinator ends a transaction after `transaction.max.timeout.ms` at the latest, by default.
TIMEOUT_MS = 15 * 60_000
SHOWN_MAX = 500
DESCRIBED_MAX = 50


@dataclass(frozen=True, slots=True)
class TopicTransaction:
    """An open transaction on one partition. `coordinated`: as its coordinator has it; None: none knows it, or it was
    not asked, since there are more than DESCRIBED_MAX."""

    open: OpenTransaction
    transactional_id: str | None
    coordinated: Transaction | None
    holds_back: bool
    """Whether it is the first of its partition: the last stable offset is where it begins."""
    hangs: bool


@dataclass(frozen=True, slots=True)
class TopicTransactions:
    """`found`: by partition, and by where they begin; `problem`: the first partition that could not be described."""

    found: tuple[TopicTransaction, ...]
    problem: str | None = None


def read_transactions(client: DescribingClient, partitions: Sequence[TopicPartition], now_ms: int) -> TopicTransactions:
    """Ask the leaders, and for what they have the coordinators. Raises ApiError, ClusterUnreachable."""
    problem: str | None = None
    found: list[OpenTransaction] = []
    for tp, producers in (client.describe_producers(partitions) if partitions else {}).items():
        if isinstance(producers, ApiError):
            problem = problem or f"{tp}: {producers}"
        else:
            found += [OpenTransaction(tp, producer) for producer in producers if producer.start_offset is not None]
    found = sorted(found, key=lambda one: (one.tp, one.producer.start_offset or 0))[:SHOWN_MAX]
    if not found:
        return TopicTransactions((), problem)
    wanted = sorted({one.producer.producer_id for one in found})
    ids = {listed.producer_id: listed.transactional_id for listed in client.list_transactions(wanted)}
    asked = sorted(set(ids.values()))[:DESCRIBED_MAX]
    known = {name: client.describe_transaction(name) for name in asked}
    seen: set[TopicPartition] = set()
    rows = []
    for one in found:
        name = ids.get(one.producer.producer_id)
        coordinated = known.get(name) if name is not None else None
        lost = (name is None or name in known) and (coordinated is None or one.tp not in coordinated.partitions)
        late = now_ms - one.producer.last_ms > TIMEOUT_MS
        rows.append(TopicTransaction(one, name, coordinated, one.tp not in seen, lost and late))
        seen.add(one.tp)
    return TopicTransactions(tuple(rows), problem)
