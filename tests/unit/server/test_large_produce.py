"""Requests of many parts are appended in portions, between which the event loop serves others."""

import asyncio
import itertools
import struct
import threading
from typing import Any

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.model import TopicPartition
from logyard.broker.protocol import codec
from logyard.broker.protocol.produce import PARTS_MAX
from logyard.broker.records import crc, header_validation
from logyard.broker.records.header import sent_headers
from logyard.broker.server.large_produce import BYTES_AT_ONCE, PARTS_AT_ONCE
from tests.support.disk_logs import NOW_MS
from tests.support.produce_broker import PRODUCE, VERSION, Broker, made, produce_of
from tests.support.replica_world import T0

PLAIN: dict[str, Any] = {"compression_type": "producer"}
MANY = 5 * PARTS_AT_ONCE + 3


def frame(message: Any, version: int = VERSION) -> bytes:
    return codec.encode_request(PRODUCE, version, 1, "c", message)


def parts_of(answer: Any) -> dict[int, tuple[ErrorCode, int]]:
    (topic,) = answer
    assert len({part.index for part in topic.partition_responses}) == len(topic.partition_responses)
    return {part.index: (ErrorCode(part.error_code), part.base_offset) for part in topic.partition_responses}


class Turns:
    """Counts the event loop's turns, and in which of them something was appended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0
        self.appends: list[int] = []
        append = PartitionLog.append_as_leader

        def counted(log: PartitionLog, *args: Any, **named: Any) -> Any:
            self.appends.append(self.now)
            return append(log, *args, **named)

        monkeypatch.setattr(PartitionLog, "append_as_leader", counted)
        self._task = asyncio.get_running_loop().create_task(self._count())

    async def _count(self) -> None:
        while True:
            self.now += 1
            await asyncio.sleep(0)

    def at_once(self) -> int:
        """The most appends of one turn."""
        return max(len(list(group)) for _, group in itertools.groupby(self.appends))


@pytest.mark.parametrize("acks", [1, -1])
async def test_many_partitions_are_appended_a_portion_a_turn(monkeypatch: pytest.MonkeyPatch, acks: int) -> None:
    broker, turns = Broker(MANY, **PLAIN), Turns(monkeypatch)
    broker.feed(frame(produce_of(made(1, 10), acks, range(MANY))))
    await broker.answered(1)
    assert parts_of(broker.wire.whole[0]) == dict.fromkeys(range(MANY), (ErrorCode.NONE, 0))
    assert len(turns.appends) == MANY
    assert turns.at_once() == PARTS_AT_ONCE


async def test_two_connections_share_the_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, turns = Broker(MANY, **PLAIN), Turns(monkeypatch)
    other = broker.another_connection()
    broker.feed(frame(produce_of(made(1, 10), 1, range(MANY))))
    other.feed(frame(produce_of(made(1, 10), 1, range(MANY))))
    await broker.answered(1)
    await other.answered(1)
    assert len(turns.appends) == 2 * MANY
    assert turns.at_once() == PARTS_AT_ONCE


async def test_what_comes_behind_is_appended_behind() -> None:
    broker = Broker(MANY, **PLAIN)
    broker.feed(frame(produce_of(made(1, 10), 1, range(MANY))))
    broker.send(made(2, 10))
    assert await broker.answered(2) == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 1)]


async def test_what_waits_for_followers_holds_up_nothing_behind() -> None:
    broker = Broker(MANY, **PLAIN)
    broker.world.tell(broker.world.order(replicas=(1, 2), isr=(1, 2), leader_epoch=2, partition_epoch=9))
    broker.feed(frame(produce_of(made(1, 10), -1, range(MANY))))
    broker.send(made(2, 10))
    async with asyncio.timeout(20):
        while len(broker.kept()) < 2:
            await asyncio.sleep(0.001)
    assert broker.wire.answers == []


async def test_leadership_is_looked_at_before_every_portion(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, turns = Broker(MANY, **PLAIN), Turns(monkeypatch)
    broker.feed(frame(produce_of(made(1, 10), 1, range(MANY))))
    async with asyncio.timeout(20):
        while len(turns.appends) < 2 * PARTS_AT_ONCE:
            await asyncio.sleep(0)
    appended = len(turns.appends)
    orders = [
        broker.world.order(TopicPartition(T0.topic, n), leader=2, replicas=(2, 1), leader_epoch=3, partition_epoch=9)
        for n in range(MANY)
    ]
    broker.world.tell(*orders)
    await broker.answered(1)
    found = parts_of(broker.wire.whole[0])
    assert [n for n in found if found[n] == (ErrorCode.NONE, 0)] == list(range(appended))
    assert {found[n][0] for n in range(appended, MANY)} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert [broker.logs.logs[TopicPartition(T0.topic, n)].log_end_offset for n in range(MANY)] == [
        int(n < appended) for n in range(MANY)
    ]


async def test_a_partition_that_is_named_often_counts_once_with_what_came_last() -> None:
    broker = Broker(**PLAIN)
    for count in (3, MANY):
        message = produce_of(made(1, 10), 1, [0] * (count - 1))
        message["topic_data"][0]["partition_data"] += produce_of(made(7, 10), 1)["topic_data"][0]["partition_data"]
        before = sum(header.count for header in broker.kept())
        broker.feed(frame(message))
        await broker.answered(1)
        assert parts_of(broker.wire.whole.pop()) == {0: (ErrorCode.NONE, before)}
        broker.wire.answers.clear()
        assert broker.kept()[-1].count == 7


async def test_every_topic_is_answered_once_though_some_of_its_parts_are_refused_at_once() -> None:
    """Java's client reads no second topic of the same name."""
    broker = Broker(2, **PLAIN)
    torn = made(1, 10)[:-1]
    for unknown in (1, MANY):
        parts = [{"index": 0, "records": bytes(made(1, 10))}, {"index": 1, "records": bytes(torn)}]
        known = {"name": T0.topic, "partition_data": parts}
        others = produce_of(made(1, 10), 1, range(unknown))["topic_data"][0] | {"name": "unknown"}
        broker.feed(frame({"transactional_id": None, "acks": 1, "timeout_ms": 0, "topic_data": [known, others]}))
        await broker.answered(1)
        broker.wire.answers.clear()
        answer = {topic.name: topic.partition_responses for topic in broker.wire.whole.pop()}
        assert len(answer) == 2
        assert {part.index: ErrorCode(part.error_code) for part in answer[T0.topic]} == {
            0: ErrorCode.NONE,
            1: ErrorCode.INVALID_RECORD,
        }
        assert {part.error_code for part in answer["unknown"]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_large_batches_are_appended_some_megabytes_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, turns = Broker(8, **PLAIN), Turns(monkeypatch)
    batch = made(1, 1_000_000)
    broker.feed(frame(produce_of(batch, 1, range(8))))
    await broker.answered(1)
    assert len(turns.appends) == 8
    assert turns.at_once() <= BYTES_AT_ONCE // len(batch)


async def test_with_acks_0_what_went_wrong_closes_the_connection() -> None:
    broker = Broker(MANY, **PLAIN)
    broker.feed(frame(produce_of(made(1, 10), 0, range(MANY))))
    broker.feed(frame(produce_of(made(1, 10), 0, range(MANY + 1))))
    async with asyncio.timeout(20):
        while not broker.wire.closed:
            await asyncio.sleep(0.001)
    assert broker.wire.whole == []
    assert len(broker.kept()) == 2


async def test_a_request_of_more_parts_than_anybody_has_closes_the_connection() -> None:
    broker = Broker(**PLAIN)
    broker.feed(frame(produce_of(b"", 1, [0] * (PARTS_MAX + 1))))
    async with asyncio.timeout(20):
        while not broker.wire.closed:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("magic", [0, 1])
async def test_many_old_messages_are_found_in_a_thread(monkeypatch: pytest.MonkeyPatch, magic: int) -> None:
    def old() -> bytes:
        content = struct.pack(">bb", magic, 0) + (struct.pack(">q", NOW_MS) if magic else b"")
        content += struct.pack(">i", -1) + struct.pack(">i", 1) + b"v"
        return struct.pack(">qiI", 0, len(content) + 4, crc.crc32(content)) + content

    seen = []
    monkeypatch.setattr(
        header_validation, "sent_headers", lambda buf: seen.append(threading.current_thread()) or sent_headers(buf)
    )
    broker = Broker(**PLAIN)
    broker.wire.version = 2
    broker.feed(frame(produce_of(old() * 5000, 1), version=2))
    assert await broker.answered(1) == [(ErrorCode.NONE, 0)]
    assert seen
    assert threading.main_thread() not in seen
    assert [header.count for header in broker.kept()] == [5000]
