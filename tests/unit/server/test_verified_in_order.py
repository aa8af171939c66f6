"""Transactional Produce requests of one connection that come while the coordinator is asked (facts §17.3)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.records import batch
from logyard.broker.server.large_produce import PARTS_AT_ONCE
from tests.support.transactional_broker import PID, TOPIC, TransactionalBroker

NONE = ErrorCode.NONE


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[TransactionalBroker]:
    async with TransactionalBroker(tmp_path) as broker:
        yield broker


async def test_requests_of_one_connection_are_verified_together_and_appended_in_order(
    world: TransactionalBroker,
) -> None:
    world.coordinator.hold()
    sent = [asyncio.ensure_future(world.produce(0, partitions=[n])) for n in (0, 1)]
    sent.append(asyncio.ensure_future(world.produce(1, partitions=[1])))
    sent.append(asyncio.ensure_future(world.plain(partitions=[1])))
    await asyncio.sleep(0.01)
    assert [log.log_end_offset for log in map(world.log, (0, 1))] == [0, 0], "none may overtake the first"
    world.coordinator.release()
    assert await asyncio.gather(*sent) == [{0: NONE}, {1: NONE}, {1: NONE}, {1: NONE}]
    ((question,),) = world.coordinator.asked
    assert list(question.partitions) == [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]
    piece = memoryview(world.log(1).read(0, 1 << 20, limit_offset=3, min_one=True).load())
    assert [(h.producer_id, h.base_sequence) for _, h in batch.iter_headers(piece)] == [(PID, 0), (PID, 1), (-1, -1)]
    assert world.session.last_append is None


async def test_a_request_behind_a_refused_one_is_appended(world: TransactionalBroker) -> None:
    world.coordinator.hold()
    world.coordinator.failing = ValueError("a bug")
    first = asyncio.ensure_future(world.produce(0))
    await asyncio.sleep(0.01)
    second = asyncio.ensure_future(world.plain())
    large = asyncio.ensure_future(world.plain(partitions=range(PARTS_AT_ONCE + 1)))
    await asyncio.sleep(0.01)
    assert not second.done()
    assert not large.done()
    world.coordinator.release()
    assert await first == {0: ErrorCode.NOT_ENOUGH_REPLICAS}
    assert world.session.is_appending, "the large one is not appended yet, and what follows may not overtake it"
    assert await second == {0: NONE}
    assert (await large)[0] is NONE
    assert world.session.last_append is None


async def test_who_adds_partitions_by_producing_waits_for_the_append(world: TransactionalBroker) -> None:
    """The coordinator adds to a transaction one request after the other: a second one would be told to wait."""
    world.coordinator.hold()
    first = asyncio.ensure_future(world.produce(0, version=12))
    await asyncio.sleep(0.01)
    assert world.session.is_appending
    world.coordinator.release()
    assert await first == {0: NONE}
    assert not world.session.is_appending
