"""A whole broker's answers to Fetch v0 to v3: the same with and without the compiled loop, which it loads for them."""

import asyncio
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logyard.broker.compiled import loading, old_conversion, prepared
from logyard.broker.event_loop import RunBlocking
from logyard.broker.protocol.fetch import FetchPartition, FetchRequest
from logyard.broker.protocol.fetch_client import decode_response, encode_request
from logyard.broker.records import compiled_look, compiled_loops, downconvert
from logyard.broker.records.batch import Record, build
from logyard.broker.records.legacy import legacy_records
from logyard.broker.server.handlers.fetch import MUCH_BYTES
from tests.support.inside_broker import InsideBroker
from tests.support.sasl_client import SaslClient

PRODUCE, TOPIC = 0, "old-readers"
MEGABYTE = 1 << 20


@pytest.fixture(autouse=True)
def unloaded() -> Iterator[None]:
    forget()
    yield
    forget()
    compiled_loops.load_by(None)


def forget() -> None:
    downconvert.use(None)
    compiled_look.use(None)


def records(count: int, size: int) -> list[Record]:
    chance = random.Random(count)
    return [Record(n, 1000 + n, b"k" * (n % 3) or None, chance.randbytes(size), (("h", b""),)) for n in range(count)]


async def produce(client: SaslClient, *batches: bytes | bytearray, partition: int = 0) -> None:
    for each in batches:
        topic = {"name": TOPIC, "partition_data": [{"index": partition, "records": bytes(each)}]}
        answer = await client.ask(PRODUCE, 9, transactional_id=None, acks=1, timeout_ms=9000, topic_data=[topic])
        assert not answer.responses[0].partition_responses[0].error_code


def question(version: int, *partitions: int, bytes_max: int = MEGABYTE, offset: int = 0) -> bytes:
    asks = [FetchPartition(TOPIC, None, n, offset, bytes_max) for n in partitions]
    return encode_request(version, 1, "c", FetchRequest(-1, 100, 1, asks))


async def fetched(client: SaslClient, version: int, *partitions: int, bytes_max: int = MEGABYTE) -> list[bytes]:
    client.send(question(version, *partitions, bytes_max=bytes_max))
    answer = await client.frame(60)
    assert answer is not None
    found = decode_response(version, memoryview(answer)).partitions
    assert not any(each.error_code for each in found)
    return [bytes(each.records) for each in found]


async def test_the_same_bytes_with_and_without_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The broker's own child compiles with low priority: beside other tests it may get a tenth of a processor for that.
    await asyncio.to_thread(prepared.compile_and_keep)
    has_ended = asyncio.Event()
    load = loading.load

    async def loaded(run_blocking: RunBlocking) -> None:
        try:
            await load(run_blocking)
        finally:
            has_ended.set()

    monkeypatch.setattr(loading, "load", loaded)
    async with InsideBroker(tmp_path) as broker:
        await broker.create_topic(TOPIC, 3)
        client = await SaslClient.connect(broker.port)
        plain, packed = build(records(40, 1000)), build(records(40, 1000), compression=1)
        await produce(client, *[plain] * 4)
        await produce(client, plain, packed, packed, plain, build(records(2000, 60)), plain, partition=1)
        await produce(client, *[plain] * 40, partition=2)
        sizes = (3_000, 50_000, 200_000, MEGABYTE)
        asked = [(version, size, parts) for version in range(4) for size in sizes for parts in ((0,), (0, 1, 2), (1,))]
        without = [await fetched(client, version, *parts, bytes_max=size) for version, size, parts in asked]
        assert len(legacy_records(without[-1][0])) == 40 * 5 + 2000

        async def answers_are_the_same() -> None:
            for (version, size, parts), expected in zip(asked, without, strict=True):
                assert await fetched(client, version, *parts, bytes_max=size) == expected, (version, size, parts)

        # The answers above were large enough to have it loaded, by a child and a thread.
        await asyncio.wait_for(has_ended.wait(), 240)
        assert compiled_look.is_loaded()
        await answers_are_the_same()

        def in_a_thread(*_: Any) -> None:
            raise AssertionError("it goes to a thread")

        monkeypatch.setattr(broker.components.replicas.hosted, "in_record_thread", in_a_thread)
        expected = without[asked.index((2, 200_000, (0,)))]
        assert await fetched(client, 2, 0, bytes_max=200_000) == expected
        await client.close()


async def test_it_is_asked_for_by_who_has_much_to_read(tmp_path: Path) -> None:
    async with InsideBroker(tmp_path) as broker:
        asked: list[int] = []
        compiled_loops.load_by(lambda: asked.append(1))
        await broker.create_topic(TOPIC, 2)
        client = await SaslClient.connect(broker.port)
        for partition in range(2):
            await produce(client, *[build(records(10, 1000))] * 5, partition=partition)
        assert 50_000 < MUCH_BYTES < 100_000
        for version, partitions, count in ((2, (0,), 0), (4, (0, 1), 0), (2, (0, 1), 1), (2, (0, 1), 1)):
            await fetched(client, version, *partitions)
            assert len(asked) == count
        await client.close()


async def test_many_partitions_with_little_are_for_a_thread(tmp_path: Path) -> None:
    here: list[bool] = []

    class Noted(old_conversion.Conversion):
        def __init__(self, *values: Any) -> None:
            here.append(threading.current_thread() is threading.main_thread())
            super().__init__(*values)

    old_conversion.compile_and_keep()
    async with InsideBroker(tmp_path) as broker:
        compiled_loops.load_by(None)
        await broker.create_topic(TOPIC, 100)
        client = await SaslClient.connect(broker.port)
        for partition in range(100):
            await produce(client, build(records(1, 100)), partition=partition)
        downconvert.use(Noted)
        assert all(await fetched(client, 2, *range(100)))
        assert 40 <= sum(here) <= downconvert.AT_ONCE_BYTES // downconvert.BEGIN_BYTES
        assert len(here) == 100
        await client.close()


async def test_work_for_who_is_gone_ends(tmp_path: Path) -> None:
    """At the first megabyte of the first partition."""
    begun, gone, turns = threading.Event(), threading.Event(), []

    class Slow(old_conversion.Conversion):
        def go_on(self, pos: int, bytes_max: int) -> int:
            turns.append(pos)
            begun.set()
            gone.wait(20)
            return super().go_on(pos, bytes_max)

    old_conversion.compile_and_keep()
    async with InsideBroker(tmp_path) as broker:
        compiled_loops.load_by(None)
        await broker.create_topic(TOPIC, 2)
        others = broker.connections
        client = await SaslClient.connect(broker.port)
        for partition in range(2):
            await produce(client, *[build(records(100, 9000))] * 5, partition=partition)
        downconvert.use(Slow)
        client.send(question(2, 0, 1, bytes_max=20 * MEGABYTE))
        assert await asyncio.to_thread(begun.wait, 20)
        (connection,) = [each for each in broker.connections if each not in others]
        await client.close()
        async with asyncio.timeout(20):
            while not connection.session.is_gone:
                await asyncio.sleep(0.01)
            gone.set()
            await broker.components.replicas.in_record_thread(lambda: None)
        await asyncio.sleep(0.2)
        assert turns == [0]
