"""What the coordinator needs from the world, and an in-memory twin of its log."""

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from logyard.broker.errors import ErrorCode
from logyard.broker.event_loop import TimerHandle

# (key, value); a None value is a tombstone.
KeyValue = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """One batch of the offsets log. `producer_id` is set for what belongs to a transaction, `commits` for its marker.

    `commits` is True for a commit, False for an abort; such a batch has no records.
    """

    base_offset: int
    records: Sequence[KeyValue]
    producer_id: int | None = None
    commits: bool | None = None


class OffsetsLog(Protocol):
    """`__consumer_offsets` as the coordinator sees it."""

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has (or will have, before it exists)."""
        ...

    def append(self, partition: int, records: Sequence[KeyValue]) -> Awaitable[ErrorCode]:
        """Write the records as one batch; awaited, wait for the whole ISR. NONE, or why not.

        They lie in the log, behind all that was appended before, when this returns, unless it was refused at once.
        """
        ...

    async def read(self, partition: int, take: Callable[[StoredBatch], None], note: Callable[[str], None]) -> None:
        """Hand over everything in the partition from its start, batch by batch, from a thread of its own or not.

        A batch whose records do not parse is noted and left out. Raises StorageError where the log cannot be read.
        """
        ...


CallLater = Callable[[float, Callable[[], None]], TimerHandle]


class Answered:
    """The answer to an append that is known already."""

    def __init__(self, code: ErrorCode) -> None:
        self._code = code

    def __await__(self) -> Generator[Any, None, ErrorCode]:
        yield from ()
        return self._code


class MemoryOffsetsLog:
    """The twin: batches in lists, and an error that the next appends answer with."""

    def __init__(self, partition_count: int = 4) -> None:
        self.partition_count = partition_count
        self.partitions: dict[int, list[StoredBatch]] = {}
        self.failing: ErrorCode = ErrorCode.NONE

    def append(self, partition: int, records: Sequence[KeyValue]) -> Awaitable[ErrorCode]:
        if self.failing is ErrorCode.NONE:
            batches = self.partitions.setdefault(partition, [])
            batches.append(StoredBatch(len(batches), list(records)))
        return Answered(self.failing)

    async def read(self, partition: int, take: Callable[[StoredBatch], None], note: Callable[[str], None]) -> None:
        for batch in list(self.partitions.get(partition, ())):
            take(batch)
