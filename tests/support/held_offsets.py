"""An offsets log whose acknowledgements come when a test says so; the records lie in it at once, as in a real one."""

import asyncio
from collections.abc import Generator, Sequence
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.groups.ports import Appended, KeyValue, Producer
from tests.support.memory_offsets_log import MemoryOffsetsLog


class Waiting:
    """An append that is answered later."""

    def __init__(self, answer: "asyncio.Future[ErrorCode]", base_offset: int) -> None:
        self._answer = answer
        self.base_offset = base_offset

    def __await__(self) -> Generator[Any, None, ErrorCode]:
        return self._answer.__await__()


class HeldOffsetsLog(MemoryOffsetsLog):
    """`held`: appends wait for `acknowledge`. `appended`: everything that was ever appended, in order."""

    def __init__(self, partition_count: int = 1) -> None:
        super().__init__(partition_count)
        self.held = False
        self.appended: list[KeyValue] = []
        self.waiting: list[asyncio.Future[ErrorCode]] = []

    def append(self, partition: int, records: Sequence[KeyValue], producer: Producer | None = None) -> Appended:
        base_offset = self._append(partition, records, producer)
        if self.failing is ErrorCode.NONE:
            self.appended += records
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        if self.held:
            self.waiting.append(answer)
        else:
            answer.set_result(self.failing)
        return Waiting(answer, base_offset)

    def acknowledge(self, number: int = 0, code: ErrorCode = ErrorCode.NONE) -> None:
        """Answer one of the appends that wait."""
        self.waiting.pop(number).set_result(code)

    def acknowledge_all(self) -> None:
        while self.waiting:
            self.acknowledge()
