"""Which broker gets the markers of a decided transaction, and what its answers mean (facts §17.5)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto

from logyard.broker.errors import ErrorCode
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.coordinators import living_leader
from logyard.broker.model import TopicPartition
from logyard.broker.transactions.owned_transactions import LedPartition
from logyard.broker.transactions.ports import Marker
from logyard.broker.transactions.states import State
from logyard.broker.transactions.transaction import Change, Transaction


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """A decided transaction that waits for its markers; `change` is what is appended behind the last of them.

    `finished` is called with it once no partition needs a marker any more.
    """

    led: LedPartition
    transaction: Transaction
    change: Change
    finished: Callable[["Completion"], None]

    def marker(self, partitions: Iterable[TopicPartition]) -> Marker:
        """The outcome for some of the partitions, under the coordinator epoch of this election."""
        stored = self.transaction.stored
        commits = stored.state is State.PREPARE_COMMIT
        epoch = self.led.coordinator_epoch
        return Marker(stored.producer_id, stored.epoch, epoch, commits, sorted(partitions), stored.client_version)


def destinations(
    metadata: MetadataCache, listener: str, partitions: Iterable[TopicPartition]
) -> dict[int | None, list[TopicPartition]]:
    """Group partitions, in their order, by the brokers that lead them and that can be reached on the listener.

    None has those without such a broker now. A partition that the metadata do not have is among them: a broker that
    has just started hears of partitions after it has been elected, so its absence says nothing.
    """
    found: dict[int | None, list[TopicPartition]] = {}
    for tp in sorted(partitions):
        leader = living_leader(metadata, tp)
        is_reachable = leader is not None and leader.endpoint(listener) is not None
        found.setdefault(leader.id if leader is not None and is_reachable else None, []).append(tp)
    return found


class Verdict(Enum):
    """What one partition's answer means."""

    DONE = auto()
    AGAIN = auto()
    FENCED = auto()
    """Another coordinator or a later producer is known there: no more is sent before the next load."""


_VERDICTS = {
    ErrorCode.NONE: Verdict.DONE,
    ErrorCode.UNSUPPORTED_VERSION: Verdict.DONE,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Verdict.DONE,
    ErrorCode.INVALID_PRODUCER_EPOCH: Verdict.FENCED,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: Verdict.FENCED,
}


def verdict(code: ErrorCode | None) -> Verdict:
    """An unexpected code, or none, is asked again, where Kafka leaves this and other transactions as they are."""
    return Verdict.AGAIN if code is None else _VERDICTS.get(code, Verdict.AGAIN)
