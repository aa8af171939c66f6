"""Replication throttles on both sides (KIP-73, facts §18)."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ErrorCode
from logyard.broker.log.producers import Origin
from logyard.broker.replication.events import FetchParams, PartitionFetch
from logyard.broker.replication.throttle import ByteRate, is_listed
from tests.support.disk_logs import batch, stored
from tests.support.followed import Followed, answer, run
from tests.support.replica_world import T0, World, fetch_once, follower_fetch, produce
from tests.support.virtual_loop import VirtualLoop

SIZE = len(batch())


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


def test_a_rate_is_an_average_over_eleven_seconds() -> None:
    rate = ByteRate()
    assert rate.per_second(0) == 0
    rate.record(1000, 0)
    assert rate.per_second(0) == 1000
    assert rate.per_second(4000) == 250
    rate.record(1000, 4000)
    assert rate.per_second(4000) == 500
    assert rate.per_second(11_000) == 1000 / 7, "the first second is forgotten"
    assert rate.per_second(100_000) == 0


@pytest.mark.parametrize(
    ("listed", "expected"), [((), False), (("*",), True), (("0:1",), True), (("0:2",), False), (("1:1",), False)]
)
def test_which_replicas_are_listed(listed: Any, expected: Any) -> None:
    assert is_listed(listed, 0, 1) is expected


def throttled_world(isr: Any) -> World:
    world = World(leader_throttled_rate=SIZE)
    world.config = TopicConfig(leader_replication_throttled_replicas=("0:1",))
    world.tell(world.order(isr=isr))
    for _ in range(3):
        produce(world)
    return world


def taken(world: World, replica: int = 3) -> Any:
    return len(follower_fetch(world, replica, 0)[0].records)


def test_a_leader_throttles_listed_replicas_outside_the_isr() -> None:
    world = throttled_world(isr=(1, 2))
    assert taken(world) == 3 * SIZE
    assert taken(world) == 0
    assert taken(world, replica=2) == 3 * SIZE, "a member of the ISR is never held back"
    world.advance(20_000)
    assert taken(world) == 3 * SIZE


def test_a_large_batch_that_comes_in_part_is_neither_sent_nor_counted() -> None:
    """The follower leaves it out: of a megabyte with batches of 800 KB a quarter of the rate was lost."""
    world = throttled_world(isr=(1, 2))
    world.replicas.settings.leader_throttled_rate = 10**12
    hosted = world.replicas.hosted
    for _ in range(3):
        large = batch(payload=b"v" * 100_000)
        world.replicas.producing.append([(T0, large)], acks=1, timeout_ms=1000, origin=Origin.CLIENT)
    asked = FetchParams(0, 1, 10**6, replica_id=3)
    answers = fetch_once(world.replicas, asked, [PartitionFetch(T0, 3, 3 * len(large) - 1)])
    assert len(answers[0].records) == 2 * len(large)
    assert hosted.throttled_out.per_second(hosted.now_ms()) == 2 * len(large)


def test_a_throttled_follower_that_asks_beyond_the_end_is_told_so() -> None:
    """Otherwise it counted as being there, and came into the ISR with a log that has diverged."""
    world = throttled_world(isr=(1, 2))
    assert taken(world) == 3 * SIZE, "it has to wait from now on"
    world.submitted.clear()
    assert follower_fetch(world, 3, 100)[0].error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert world.submitted == []


def test_without_a_limit_or_a_list_nothing_is_throttled() -> None:
    world = throttled_world(isr=(1, 2))
    world.replicas.settings.leader_throttled_rate = 10**12
    assert taken(world) == taken(world) == 3 * SIZE
    world.replicas.settings.leader_throttled_rate = 1
    world.config = TopicConfig()
    world.replicas.topic_configs_changed(["flights"])
    assert taken(world) == 3 * SIZE


def test_a_follower_throttles_itself_until_it_has_caught_up(loop: VirtualLoop) -> None:
    size = len(stored(0, 0))

    async def story(f: Followed) -> None:
        f.world.config = TopicConfig(follower_replication_throttled_replicas=("*",))
        f.leader.script = [[answer(records=stored(n, 0), hw=4)] for n in range(4)]
        f.follow()
        await asyncio.sleep(20)
        assert f.log().log_end_offset == 4
        times = [t for t, r in zip(f.leader.times, f.leader.asked, strict=True) if r.partitions]
        assert times[1] - times[0] < 0.5, "half the rate in the first second"
        assert times[3] - times[0] > 0.9, "then it waits"
        assert f.leader.asked[-1].partitions == []

    run(loop, story, follower_throttled_rate=int(1.5 * size))
