"""A stand-in for `__consumer_offsets`: batches in lists, and an error that the next appends answer with.

`partitions[n]` is what was appended to partition n; `failing` is what further appends are refused with.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.groups.ports import KeyValue, StoredBatch


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
