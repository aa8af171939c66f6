"""A stand-in for `__transaction_state`: records in lists, acknowledged at once, later, or refused.

`partitions[n]` is what was appended to partition n. With `holds` an append waits until `acknowledge` is called.
`failing` is what further appends are refused with; nothing of them is kept, unless `keeps_failed`.
"""

from collections.abc import Callable, Sequence

from logyard.broker.errors import ErrorCode, StorageError
from logyard.broker.transactions.ports import Acknowledged, KeyValue


class MemoryStateLog:
    """The twin of StateLog."""

    def __init__(self) -> None:
        self.partitions: dict[int, list[KeyValue]] = {}
        self.batches: list[tuple[int, Sequence[KeyValue], int]] = []
        self.failing = ErrorCode.NONE
        self.keeps_failed = False
        self.holds = False
        self.waiting: list[Acknowledged] = []
        self.unreadable = 0
        self.replicated = True
        self.batch_limit = 1 << 20

    def append(self, partition: int, records: Sequence[KeyValue], timeout_ms: int, done: Acknowledged) -> None:
        self.batches.append((partition, records, timeout_ms))
        if self.failing is ErrorCode.NONE or self.keeps_failed:
            self.partitions.setdefault(partition, []).extend(records)
        if self.holds:
            self.waiting.append(done)
        else:
            done(self.failing)

    def acknowledge(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """Answer the oldest append that waits."""
        self.waiting.pop(0)(code)

    async def read(self, partition: int, take: Callable[[KeyValue], None]) -> int:
        if self.unreadable:
            self.unreadable -= 1
            raise StorageError("planted")
        records = self.partitions.get(partition, [])
        for record in list(records):
            take(record)
        return len(records)

    def is_replicated(self, partition: int, offset: int) -> bool:
        return self.replicated

    def batch_bytes_max(self) -> int:
        return self.batch_limit
