"""A whole broker that sends records from its files: to quick and slow readers, and what is not in memory."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from logyard.broker.log.disk import page_cache
from logyard.broker.protocol.fetch import FetchPartition, FetchRequest
from logyard.broker.protocol.fetch_client import decode_response, encode_request
from logyard.broker.records.batch import Record, build
from tests.support.dropped import drop, skip_unless_told
from tests.support.inside_broker import InsideBroker
from tests.support.sasl_client import SaslClient


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Any], Any]:
    """Runs a coroutine in a loop of that kind."""
    skip_unless_told(tmp_path)
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run(work: Any) -> Any:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(work)

    return run


PRODUCE, TOPIC, PARTITIONS = 0, "large", 3


async def fill(client: SaslClient, count: int) -> None:
    """Produce so many batches of 50 KB to each partition."""
    for _ in range(count):
        data = [
            {"index": n, "records": bytes(build([Record(0, 1, None, os.urandom(50_000))]))} for n in range(PARTITIONS)
        ]
        topic = {"name": TOPIC, "partition_data": data}
        answer = await client.ask(PRODUCE, 9, transactional_id=None, acks=1, timeout_ms=9000, topic_data=[topic])
        assert not any(each.error_code for each in answer.responses[0].partition_responses)


def question(version: int, number: int, bytes_max: int = 1 << 20) -> bytes:
    asks = [FetchPartition(TOPIC, None, n, 0, bytes_max) for n in range(PARTITIONS)]
    return encode_request(version, number, "c", FetchRequest(-1, 100, 1, asks))


def found(version: int, answer: bytes | None) -> list[bytes]:
    assert answer is not None
    partitions = decode_response(version, memoryview(answer)).partitions
    assert not any(each.error_code for each in partitions)
    return [bytes(each.records) for each in partitions]


def sent(broker: InsideBroker) -> float:
    """How many bytes the broker has sent from files."""
    return broker.components.gauges()["answer_bytes_sent_from_files"]


def stored(directory: Path) -> list[bytes]:
    """The log files' bytes, by partition."""
    return [next(directory.rglob(f"{TOPIC}-{n}/*.log")).read_bytes() for n in range(PARTITIONS)]


def test_a_broker_sends_from_files_to_who_speaks_plain_text(run: Callable[[Any], Any], tmp_path: Path) -> None:
    async def work() -> None:
        async with InsideBroker(tmp_path) as broker:
            await broker.create_topic(TOPIC, PARTITIONS)
            client = await SaslClient.connect(broker.port)
            await fill(client, 10)
            for version in (4, 11, 12):
                before = sent(broker)
                client.send(question(version, 1))
                assert found(version, await client.frame()) == stored(tmp_path)
                assert sent(broker) - before > PARTITIONS * 500_000
            await client.close()

    run(work())


def test_a_reader_that_is_slow_gets_the_same_bytes(run: Callable[[Any], Any], tmp_path: Path) -> None:
    async def work() -> None:
        async with InsideBroker(tmp_path) as broker:
            await broker.create_topic(TOPIC, PARTITIONS)
            client = await SaslClient.connect(broker.port)
            await fill(client, 60)
            for number in range(4):  # at once, and nothing is read before the broker has no more room
                client.send(question(12, number, 8 << 20))
            await asyncio.sleep(0.5)
            for _ in range(4):
                assert found(12, await client.frame()) == stored(tmp_path)
            await client.close()

    run(work())


async def read_cold(directory: Path, *partitions: int) -> float:
    """Fetch from a broker that has these partitions only on its disk; returns how many bytes it sent from files."""
    async with InsideBroker(directory) as broker:
        await broker.create_topic(TOPIC, PARTITIONS)
        client = await SaslClient.connect(broker.port)
        await fill(client, 10)
        wanted = stored(directory)
        for number in partitions:
            drop(next(directory.rglob(f"{TOPIC}-{number}/*.log")))
        counters = broker.components.replicas.hosted.counters
        before = counters.cold_reads
        client.send(question(12, 1))
        assert found(12, await client.frame()) == wanted
        # To look into a file has the system read on in it, which may be done before the records are asked for.
        assert counters.cold_reads <= before + len(partitions)
        client.send(question(12, 2))  # what was read by the way went from memory, and is there now
        assert found(12, await client.frame()) == wanted
        await client.close()
        return sent(broker)


@pytest.mark.parametrize("partitions", [(1,), (0, 1, 2)])
def test_a_thread_brings_into_memory_what_is_not_there(
    run: Callable[[Any], Any], tmp_path: Path, partitions: tuple[int, ...]
) -> None:
    assert run(read_cold(tmp_path, *partitions)) > PARTITIONS * 500_000


async def test_where_nothing_is_known_of_what_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "pages_of", lambda fd: None)
    assert await read_cold(tmp_path, 0, 2) == 0
