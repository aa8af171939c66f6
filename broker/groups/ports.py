"""What the coordinator needs from the world."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

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


class Producer(NamedTuple):
    """Whose transaction a batch belongs to."""

    producer_id: int
    epoch: int


class Appended(Protocol):
    """An append: awaited, the whole ISR is waited for; NONE, or why it does not count."""

    @property
    def base_offset(self) -> int:
        """Where the batch lies in the log, whether it is acknowledged or not; -1: it was refused at once."""
        ...

    def __await__(self) -> Generator[Any, None, ErrorCode]: ...


class OffsetsLog(Protocol):
    """`__consumer_offsets` as the coordinator sees it."""

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has (or will have, before it exists)."""
        ...

    def append(self, partition: int, records: Sequence[KeyValue], producer: Producer | None = None) -> Appended:
        """Write the records as one batch, of `producer`'s transaction if one is given.

        They lie in the log, behind all that was appended before, when this returns, unless it was refused at once.
        """
        ...

    async def read(self, partition: int, take: Callable[[StoredBatch], None], note: Callable[[str], None]) -> None:
        """Hand over everything in the partition from its start, batch by batch, from a thread of its own or not.

        A batch whose records do not parse is noted and left out. Raises StorageError where the log cannot be read.
        """
        ...


CallLater = Callable[[float, Callable[[], None]], TimerHandle]
