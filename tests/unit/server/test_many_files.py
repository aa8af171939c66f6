"""Requests that write a file for each partition write a few in a turn of the event loop: a disk may be slow."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.log.producers import Origin
from logyard.broker.model import TopicPartition
from logyard.broker.server.large_answers import PARTS_AT_ONCE, PARTS_OF_A_FILE
from tests.support.disk_logs import batch
from tests.support.inside_broker import InsideBroker
from tests.support.sasl_client import SaslClient

DELETE_RECORDS, ALTER_REPLICA_LOG_DIRS = 21, 34
MANY = 200
TPS = [TopicPartition("t", number) for number in range(MANY)]
FILES_AT_ONCE = PARTS_AT_ONCE // PARTS_OF_A_FILE


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InsideBroker]:
    async with InsideBroker(tmp_path, {"log.dirs": f"{tmp_path}/one,{tmp_path}/two"}) as started:
        await started.create_topic("t", MANY)
        yield started


async def ask(broker: InsideBroker, key: int, version: int, done: Callable[[], int], **fields: Any) -> tuple[Any, int]:
    """Return the answer, and by how much `done()` has grown in one turn of the loop at most."""
    client = await SaslClient.connect(broker.port)
    seen: list[int] = []

    async def watch() -> None:
        while True:
            seen.append(done())
            await asyncio.sleep(0)

    watching = asyncio.ensure_future(watch())
    await asyncio.sleep(0)
    answer = await client.ask(key, version, **fields)
    watching.cancel()
    await client.close()
    return answer, max(after - before for before, after in itertools.pairwise(seen))


async def test_records_of_many_partitions_are_deleted_in_portions(broker: InsideBroker) -> None:
    replicas = broker.components.replicas
    for tp in TPS:
        replicas.producing.append([(tp, batch(3))], acks=1, timeout_ms=0, origin=Origin.CLIENT)

    logs = [partition.log for tp in TPS if (partition := replicas.partition(tp)) is not None]

    def deleted() -> int:
        return sum(log is not None and log.log_start_offset > 0 for log in logs)

    # Of a partition that is named twice the last offset counts, as in Kafka.
    wanted = [(0, 3), *((number, -1) for number in range(1, MANY)), (MANY, 0), (0, 2)]
    partitions = [{"partition_index": number, "offset": offset} for number, offset in wanted]
    topics = [{"name": "t", "partitions": partitions}]
    answer, most = await ask(broker, DELETE_RECORDS, 2, deleted, topics=topics, timeout_ms=30_000)
    (told,) = answer.topics
    assert [(p.partition_index, p.low_watermark, p.error_code) for p in told.partitions] == [
        (0, 2, 0),
        *((number, 3, 0) for number in range(1, MANY)),
        (MANY, -1, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
    ]
    assert deleted() == MANY
    assert most <= FILES_AT_ONCE


async def test_many_replicas_begin_to_move_in_portions(broker: InsideBroker, tmp_path: Path) -> None:
    logs, two = broker.components.store.logs, f"{tmp_path}/two"

    def begun() -> int:
        found = (logs.future(tp) or logs.get(tp) for tp in TPS)
        return sum(log is not None and log.directory.startswith(two) for log in found)

    dirs = [{"path": two, "topics": [{"name": "t", "partitions": [*range(MANY), MANY]}]}]
    answer, most = await ask(broker, ALTER_REPLICA_LOG_DIRS, 2, begun, dirs=dirs)
    (told,) = answer.results
    unknown = int(ErrorCode.REPLICA_NOT_AVAILABLE)
    assert [p.error_code for p in told.partitions] == [0] * MANY + [unknown]
    assert begun() == MANY
    assert 0 < most <= FILES_AT_ONCE
    async with asyncio.timeout(30):
        while any(logs.future(tp) is not None for tp in TPS):
            await asyncio.sleep(0.02)
    assert begun() == MANY
