"""What the transaction coordinator needs from the world."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition

KeyValue = tuple[bytes, bytes | None]
"""A key and its value; a None value is a tombstone."""

Acknowledged = Callable[[ErrorCode], None]


class StateLog(Protocol):
    """`__transaction_state` as the coordinator sees it."""

    def append(self, partition: int, records: Sequence[KeyValue], timeout_ms: int, done: Acknowledged) -> None:
        """Write the records as one batch, and call `done` once the whole ISR has them: NONE, or why not.

        They are in the log, behind all that was appended before, when this returns, unless they were refused. `done`
        may be called before this returns.
        """
        ...

    async def read(self, partition: int, take: Callable[[KeyValue], None]) -> int:
        """Hand over every record from the partition's start to its end, in a thread; return the end's offset.

        Raises StorageError where the log cannot be read, and what `take` raises.
        """
        ...

    def is_replicated(self, partition: int, offset: int) -> bool:
        """Whether everything below that offset is on the whole ISR."""
        ...

    def batch_bytes_max(self) -> int:
        """How many bytes a batch may have."""
        ...


class ProducerIds(Protocol):
    """Where producer ids come from."""

    async def next(self) -> int:
        """Return an id that nobody else has; raises ApiError(COORDINATOR_LOAD_IN_PROGRESS) while none can be had."""
        ...


@dataclass(frozen=True, slots=True)
class Marker:
    """The outcome of one transaction for partitions that one broker leads, each of them once.

    From `version` 2 on its epoch is higher than that of every batch of the transaction.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commits: bool
    partitions: Collection[TopicPartition]
    version: int = 0


MarkerAnswer = Mapping[TopicPartition, ErrorCode]


class MarkerLinks(Protocol):
    """The way to the brokers that lead a transaction's partitions."""

    def write_markers(self, broker_id: int, markers: Sequence[Marker]) -> Awaitable[Mapping[int, MarkerAnswer]]:
        """Have a broker write markers; return what came of them by producer id. Raises LinkError and CorruptData."""
        ...


FindDeleted = Callable[[Sequence[TopicPartition]], Awaitable[Sequence[TopicPartition]]]
"""Returns which of these partitions exist no more, by ZooKeeper. Raises LogyardError where that cannot be asked."""
