"""The ports of the group coordinator: the offsets log, and timers."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from logyard.broker.errors import ErrorCode
from logyard.broker.event_loop import TimerHandle

# (key, value); a None value is a tombstone.
KeyValue = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """One batch of the offsets log. `producer_id` is set if the batch is part of a transaction.

    A marker has no records, and sets `commits`: True for a commit, False for an abort.
    """

    base_offset: int
    records: Sequence[KeyValue]
    producer_id: int | None = None
    commits: bool | None = None


class Producer(NamedTuple):
    """The producer of a transaction."""

    producer_id: int
    epoch: int


class Appended(Protocol):
    """The result of an append. Await it until the whole ISR has the batch: NONE, or the error."""

    @property
    def base_offset(self) -> int:
        """The batch's offset in the log, whether it is acknowledged or not; -1: it was refused at once."""
        ...

    def __await__(self) -> Generator[Any, None, ErrorCode]: ...


class OffsetsLog(Protocol):
    """The topic `__consumer_offsets`."""

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has, or will have if it does not exist yet."""
        ...

    def batch_bytes_max(self, partition: int) -> int:
        """The size of the largest batch that the partition takes now."""
        ...

    def append(self, partition: int, records: Sequence[KeyValue], producer: Producer | None = None) -> Appended:
        """Append the records as one batch, in `producer`'s transaction if one is given.

        They are in the log when this returns, unless the append was refused. Await the result until the whole ISR has
        them: NONE, or the error of the append.
        """
        ...

    async def read(self, partition: int, take: Callable[[StoredBatch], None], note: Callable[[str], None]) -> None:
        """Pass all batches of the partition to `take`, from its start on; `take` may be called in another thread.

        A batch that cannot be parsed is skipped, and `note` is called. Raises StorageError if the log cannot be read.
        """
        ...


CallLater = Callable[[float, Callable[[], None]], TimerHandle]
