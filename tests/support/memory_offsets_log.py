"""A stand-in for `__consumer_offsets`: batches in lists, acknowledged at once, later, or refused.

    log = MemoryOffsetsLog(partition_count=1)
    groups = GroupCoordinator(log, clock, call_later, new_id)
    log.held = True  # appends wait, and lie in the log at once, as in a real one
    commit = asyncio.ensure_future(groups.commits.commit(...))
    log.acknowledge()

`partitions[n]` is what was appended to partition n, `appended` every record in order; `failing` is what further appends
are refused with. `end_transaction` writes a marker as a transaction's coordinator has it written.
"""

import asyncio
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


class Waiting:
    """An append that is answered later."""

    def __init__(self, answer: "asyncio.Future[ErrorCode]", base_offset: int) -> None:
        self._answer = answer
        self.base_offset = base_offset

    def __await__(self) -> Generator[Any, None, ErrorCode]:
        return self._answer.__await__()


class MemoryOffsetsLog:
    """See the head of this file."""

    def __init__(self, partition_count: int = 4) -> None:
        self.partition_count = partition_count
        self.partitions: dict[int, list[StoredBatch]] = {}
        self.failing: ErrorCode = ErrorCode.NONE
        self.held = False
        self.appended: list[KeyValue] = []
        self.waiting: list[asyncio.Future[ErrorCode]] = []
        self.bytes_max = 1_048_588

    def batch_bytes_max(self, partition: int) -> int:
        return self.bytes_max

    def append(self, partition: int, records: Sequence[KeyValue], producer: Producer | None = None) -> Appended:
        if sum(len(key) + len(value or b"") for key, value in records) > self.bytes_max:
            return Answered(ErrorCode.MESSAGE_TOO_LARGE)
        base_offset = self._append(partition, records, producer)
        if not self.held:
            return Answered(self.failing, base_offset)
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.waiting.append(answer)
        return Waiting(answer, base_offset)

    def _append(self, partition: int, records: Sequence[KeyValue], producer: Producer | None) -> int:
        """Return where the batch lies, -1 where it was refused."""
        if self.failing is not ErrorCode.NONE:
            return -1
        self.appended += records
        batches = self.partitions.setdefault(partition, [])
        producer_id = producer.producer_id if producer is not None else None
        batches.append(StoredBatch(len(batches), list(records), producer_id))
        return len(batches) - 1

    def acknowledge(self, number: int = 0, code: ErrorCode = ErrorCode.NONE) -> None:
        """Answer one of the appends that wait."""
        self.waiting.pop(number).set_result(code)

    def acknowledge_all(self) -> None:
        while self.waiting:
            self.acknowledge()

    def end_transaction(self, partition: int, producer_id: int, *, committed: bool) -> int:
        """Write a marker, as a transaction's coordinator has it written; returns its offset."""
        batches = self.partitions.setdefault(partition, [])
        batches.append(StoredBatch(len(batches), (), producer_id, committed))
        return len(batches) - 1

    async def read(self, partition: int, take: Callable[[StoredBatch], None], note: Callable[[str], None]) -> None:
        for batch in list(self.partitions.get(partition, ())):
            take(batch)
