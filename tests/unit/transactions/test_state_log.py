"""`__transaction_state` in a real log: what is appended is what an election reads, across compaction and damage."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.errors import ErrorCode, StorageError
from logyard.broker.log.producers import Origin
from logyard.broker.model import TRANSACTIONS_TOPIC
from logyard.broker.records import batch
from logyard.broker.replication.events import ProduceResult
from logyard.broker.replication.internal_log import InternalLog
from logyard.broker.replication.replicas import Replicas
from logyard.broker.transactions import record_format
from logyard.broker.transactions.ports import KeyValue
from logyard.broker.transactions.state_log import ReplicatedStates
from logyard.broker.transactions.states import State
from logyard.broker.transactions.transaction import Stored
from tests.support.logs import NOW, new_log

OPEN = Stored(7, 1, 100, State.ONGOING, frozenset(), 5, 5)
RECORD = (record_format.key("x"), record_format.value(OPEN))


class Producing:
    """What replication does of an append: into the log, and answered at once, later or not."""

    def __init__(self, log: Any) -> None:
        self.log = log
        self.asked: list[dict[str, Any]] = []
        self.pending: asyncio.Future[list[ProduceResult]] | None = None

    def append(self, entries: Any, **asked: Any) -> Any:
        self.asked.append(asked)
        ((tp, made),) = entries
        self.log.append_as_leader(made, 0, now_ms=NOW, origin=asked["origin"])
        return self.pending if self.pending is not None else [ProduceResult(tp, ErrorCode.NONE)]


class States:
    def __init__(self) -> None:
        self.log = new_log()
        self.producing = Producing(self.log)
        self.partition: Any = SimpleNamespace(log=self.log)

        async def in_thread(work: Callable[[], Any]) -> Any:
            return work()

        replicas = SimpleNamespace(partition=lambda tp: self.partition, producing=self.producing)
        internal = InternalLog(cast(Replicas, replicas), cast(Any, in_thread), TRANSACTIONS_TOPIC)
        self.states = ReplicatedStates(internal, ManualClock(), lambda: 1_000)
        self.answers: list[ErrorCode] = []

    def append(self, *records: KeyValue) -> None:
        self.states.append(0, records, 4711, self.answers.append)

    async def all(self) -> list[KeyValue]:
        found: list[KeyValue] = []
        await self.states.read(0, found.append)
        return found


async def test_what_is_appended_is_read() -> None:
    subject = States()
    subject.append(RECORD)
    subject.append((record_format.key("y"), None), (record_format.key("z"), None))
    assert await subject.all() == [RECORD, (record_format.key("y"), None), (record_format.key("z"), None)]
    assert subject.answers == [ErrorCode.NONE] * 2
    asked = subject.producing.asked[0]
    assert (asked["acks"], asked["timeout_ms"], asked["internal_topics"]) == (-1, 4711, True)
    assert asked["origin"] is Origin.COORDINATOR


async def test_batches_without_records_for_us_are_stepped_over() -> None:
    subject = States()
    marker = batch.build_control(batch.COMMIT, producer_id=9, producer_epoch=0, coordinator_epoch=1, timestamp=5)
    subject.log.append_as_leader(memoryview(marker), 0, now_ms=NOW, origin=Origin.COORDINATOR)
    subject.append(RECORD)
    assert await subject.all() == [RECORD]


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT])
async def test_an_acknowledgement_that_comes_later(code: ErrorCode) -> None:
    subject = States()
    subject.producing.pending = asyncio.get_running_loop().create_future()
    subject.append(RECORD)
    assert subject.answers == []
    subject.producing.pending.set_result([ProduceResult(cast(Any, None), code)])
    await asyncio.sleep(0)
    assert subject.answers == [code]


@pytest.mark.parametrize("end", ["cancel", "fail"])
async def test_an_append_is_answered_whatever_becomes_of_it(end: str) -> None:
    subject = States()
    subject.producing.pending = asyncio.get_running_loop().create_future()
    subject.append(RECORD)
    if end == "cancel":
        subject.producing.pending.cancel()
    else:
        subject.producing.pending.set_exception(RuntimeError("planted"))
    await asyncio.sleep(0)
    assert subject.answers == [ErrorCode.UNKNOWN_SERVER_ERROR]


async def test_without_a_log_nothing_is_read() -> None:
    subject = States()
    subject.partition = None
    with pytest.raises(StorageError, match="has no log here"):
        await subject.all()
    assert not subject.states.is_replicated(0, 0)


async def test_replicated_is_what_the_high_watermark_has_passed() -> None:
    subject = States()
    subject.append(RECORD)
    assert not subject.states.is_replicated(0, 1)
    subject.log.set_high_watermark(1)
    assert subject.states.is_replicated(0, 1)
    assert subject.states.batch_bytes_max() == 1_000
