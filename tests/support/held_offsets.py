"""An offsets log whose acknowledgements come when a test says so; the records lie in it at once, as in a real one."""

import asyncio
from collections.abc import Awaitable, Sequence

from logyard.broker.errors import ErrorCode
from logyard.broker.groups.ports import KeyValue
from tests.support.memory_offsets_log import MemoryOffsetsLog


class HeldOffsetsLog(MemoryOffsetsLog):
    """`held`: appends wait for `acknowledge`. `appended`: everything that was ever appended, in order."""

    def __init__(self, partition_count: int = 1) -> None:
        super().__init__(partition_count)
        self.held = False
        self.appended: list[KeyValue] = []
        self.waiting: list[asyncio.Future[ErrorCode]] = []

    def append(self, partition: int, records: Sequence[KeyValue]) -> Awaitable[ErrorCode]:
        super().append(partition, records)
        if self.failing is ErrorCode.NONE:
            self.appended += records
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        if self.held:
            self.waiting.append(answer)
        else:
            answer.set_result(self.failing)
        return answer

    def acknowledge(self, number: int = 0, code: ErrorCode = ErrorCode.NONE) -> None:
        """Answer one of the appends that wait."""
        self.waiting.pop(number).set_result(code)

    def acknowledge_all(self) -> None:
        while self.waiting:
            self.acknowledge()
