"""Transactions in a partition with followers: what the last stable offset waits for, and who hears when it moves."""

from types import SimpleNamespace
from typing import Any

import pytest

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.log.producers import Origin
from logyard.broker.model import TopicPartition
from logyard.broker.records.decode import ABORT, COMMIT
from logyard.broker.replication.events import FetchParams, Isolation, PartitionFetch
from logyard.broker.server.handlers import describe_producers
from logyard.broker.server.rights import EverythingAllowed
from logyard.broker.server.turns import Turns
from tests.support.logs import marker, transactional
from tests.support.replica_world import T0, T1, Pending, World, fetch_once, follower_fetch

PID = 7


@pytest.fixture
def world() -> World:
    """The leader of T0 with followers 2 and 3, which are in the ISR."""
    made = World()
    made.tell(made.order(isr=(1, 2, 3)))
    return made


def begin(world: World, sequence: int = 0) -> None:
    append(world, transactional(PID, sequence), Origin.CLIENT)


def end(world: World, kind: int = COMMIT, **fields: Any) -> Any:
    return append(world, marker(kind, producer_id=PID, **fields), Origin.COORDINATOR)


def append(world: World, data: memoryview, origin: Origin) -> Any:
    return world.replicas.producing.append([(T0, data)], acks=-1, timeout_ms=1000, origin=origin)


def followers_at(world: World, offset: int) -> None:
    for follower in (2, 3):
        follower_fetch(world, follower, offset)


def read_committed(world: World, offset: int = 0, max_wait_ms: int = 500) -> Any:
    params = FetchParams(max_wait_ms, 1, 10**6, isolation=Isolation.READ_COMMITTED)
    return fetch_once(world.replicas, params, [PartitionFetch(T0, offset, 10**6)])


@pytest.mark.parametrize("kind", [COMMIT, ABORT])
def test_the_stable_offset_moves_when_the_high_watermark_passes_the_marker(world: World, kind: int) -> None:
    """KAFKA-5376: fetches wake then, and what was aborted meanwhile is in their answer."""
    begin(world)
    followers_at(world, 1)
    waiting = read_committed(world)
    answer = end(world, kind)
    log = world.log()
    assert (log.high_watermark, log.last_stable_offset, log.log_end_offset) == (1, 0, 2)
    assert not waiting.done()
    assert not answer.done()
    follower_fetch(world, 2, 2)
    assert not waiting.done()
    follower_fetch(world, 3, 2)
    assert (log.high_watermark, log.last_stable_offset) == (2, 2)
    assert answer.result()[0].error is ErrorCode.NONE
    (told,) = waiting.result()
    assert (told.last_stable_offset, told.aborted) == (2, [(PID, 0)] if kind == ABORT else [])


def test_the_oldest_of_several_transactions_holds_it_back(world: World) -> None:
    begin(world)
    append(world, transactional(8, 0), Origin.CLIENT)
    end(world)
    followers_at(world, 3)
    assert world.log().last_stable_offset == 1
    append(world, marker(ABORT, producer_id=8), Origin.COORDINATOR)
    followers_at(world, 4)
    assert world.log().last_stable_offset == 4
    assert [a.last_stable_offset for a in world.log().aborted_transactions(0, 9)] == [4]


def test_markers_of_one_that_may_not_write_them(world: World) -> None:
    end(world, producer_epoch=3, coordinator_epoch=5)
    followers_at(world, 1)
    older = end(world, producer_epoch=2, coordinator_epoch=5)
    assert older[0].error is ErrorCode.INVALID_PRODUCER_EPOCH
    zombie = end(world, producer_epoch=3, coordinator_epoch=4)
    assert zombie[0].error is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert isinstance(end(world, producer_epoch=3, coordinator_epoch=5), Pending)


def test_too_few_replicas_take_no_marker(world: World) -> None:
    world.tell(world.order(leader_epoch=1, isr=(1,), partition_epoch=1))
    world.log().config = type(world.config)(min_insync_replicas=2)
    assert end(world)[0].error is ErrorCode.NOT_ENOUGH_REPLICAS


def test_who_may_begin_to_verify(world: World) -> None:
    world.tell(world.order(T1, leader=2, isr=(2, 1)))
    begin_verification = world.replicas.producing.begin_verification
    for tp, code in (
        (T1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (TopicPartition("none", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        with pytest.raises(ApiError) as refused:
            begin_verification(tp, PID, 0, 0)
        assert refused.value.code is code
    assert begin_verification(T0, PID, 0, 0) is not None
    begin(world)
    assert begin_verification(T0, PID, 0, 1) is None, "its transaction is open"


async def test_open_transactions_that_are_older_than_any_may_be_are_counted(world: World) -> None:
    async def late() -> int:
        return (await world.replicas.gauges())["partitions_with_late_transactions_count"]

    begin(world)
    written_ms = world.log().producers.entries[PID].last_timestamp
    limit_ms = written_ms + 900_000 + 300_000
    world.clock.advance((limit_ms - world.clock.now_ms()) / 1000)
    assert await late() == 0
    world.clock.advance(1)
    assert await late() == 1
    end(world, ABORT)
    assert await late() == 0


@pytest.mark.parametrize("leader", [1, 2])
async def test_producers_are_described_by_any_replica(world: World, leader: int) -> None:
    begin(world)
    end(world, coordinator_epoch=4)
    begin(world, 1)
    world.tell(world.order(leader=leader, leader_epoch=leader, isr=(1, 2, 3), partition_epoch=leader))
    topics = [SimpleNamespace(name=T0.topic, partition_indexes=[T0.partition, 9])]
    services: Any = SimpleNamespace(replicas=world.replicas, rights=EverythingAllowed(), turns=Turns())
    request: Any = SimpleNamespace(api_key=61)
    answer: Any = await describe_producers.handle(services, request, SimpleNamespace(topics=topics))
    here, unknown = answer["topics"][0]["partitions"]
    assert unknown["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (producer,) = here["active_producers"]
    assert producer["producer_id"] == PID
    assert (producer["last_sequence"], producer["coordinator_epoch"], producer["current_txn_start_offset"]) == (1, 4, 2)
