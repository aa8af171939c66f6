"""What the coordinator needs from the world, and an in-memory twin of its log."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from logyard.broker.errors import ErrorCode

# (key, value); a None value is a tombstone.
KeyValue = tuple[bytes, bytes | None]


class OffsetsLog(Protocol):
    """`__consumer_offsets` as the coordinator sees it."""

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has (or will have, before it exists)."""
        ...

    async def append(self, partition: int, records: Sequence[KeyValue]) -> ErrorCode:
        """Write the records as one batch and wait for the whole ISR; NONE, or why not."""
        ...

    def read(self, partition: int) -> AsyncIterator[list[KeyValue]]:
        """Yield everything in the partition from its start, a chunk at a time."""
        ...


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], TimerHandle]


class MemoryOffsetsLog:
    """The twin: lists of records, and an error that the next appends answer with."""

    def __init__(self, partition_count: int = 4) -> None:
        self.partition_count = partition_count
        self.partitions: dict[int, list[KeyValue]] = {}
        self.failing: ErrorCode = ErrorCode.NONE

    async def append(self, partition: int, records: Sequence[KeyValue]) -> ErrorCode:
        if self.failing is ErrorCode.NONE:
            self.partitions.setdefault(partition, []).extend(records)
        return self.failing

    async def read(self, partition: int) -> AsyncIterator[list[KeyValue]]:
        yield list(self.partitions.get(partition, ()))
