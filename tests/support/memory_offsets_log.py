"""A stand-in for `__consumer_offsets`: batches in lists, and an error that the next appends answer with.

`partitions[n]` is what was appended to partition n; `failing` is what further appends are refused with.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.groups.ports import Appended, KeyValue, Producer, StoredBatch


class Answered:
    """The answer to an append that is known already."""

    def __init__(self, code: ErrorCode, base_offset: int = -1) -> None:
        self._code = code
        self.base_offset = base_offset

    def __await__(self) -> Generator[Any, None, ErrorCode]:
        yield from ()
        return self._code


class MemoryOffsetsLog:
    """The twin: batches in lists, and an error that the next appends answer with."""

    def __init__(self, partition_count: int = 4) -> None:
        self.partition_count = partition_count
        self.partitions: dict[int, list[StoredBatch]] = {}
        self.failing: ErrorCode = ErrorCode.NONE

    def append(self, partition: int, records: Sequence[KeyValue], producer: Producer | None = None) -> Appended:
        return Answered(self.failing, self._append(partition, records, producer))

    def _append(self, partition: int, records: Sequence[KeyValue], producer: Producer | None) -> int:
        """Return where the batch lies, -1 where it was refused."""
        if self.failing is not ErrorCode.NONE:
            return -1
        batches = self.partitions.setdefault(partition, [])
        producer_id = producer.producer_id if producer is not None else None
        batches.append(StoredBatch(len(batches), list(records), producer_id))
        return len(batches) - 1

    def end_transaction(self, partition: int, producer_id: int, *, committed: bool) -> int:
        """Write a marker, as a transaction's coordinator has it written; returns its offset."""
        batches = self.partitions.setdefault(partition, [])
        batches.append(StoredBatch(len(batches), (), producer_id, committed))
        return len(batches) - 1

    async def read(self, partition: int, take: Callable[[StoredBatch], None], note: Callable[[str], None]) -> None:
        for batch in list(self.partitions.get(partition, ())):
            take(batch)
