"""A Fetch that waits for many bytes: which are counted, and what that costs."""

import pytest

from logyard.broker.model import TopicPartition
from logyard.broker.replication.events import FetchParams
from logyard.broker.replication.fetch.fetch import DelayedFetch, Fetching, Sessionless
from tests.support.disk_logs import batch
from tests.support.replica_world import T1, Pending, World, produce
from tests.unit.replication.fetch.test_fetch import MB, ask, fetch, offsets


@pytest.fixture
def world() -> World:
    """Broker 1 leads flights-0 and flights-1 alone."""
    world = World()
    world.tell(world.order(replicas=(1, 2), isr=(1,)), world.order(T1, replicas=(1, 2), isr=(1,)))
    return world


def test_waiting_for_many_bytes_counts_what_was_there_before(world: World) -> None:
    """It was answered when its time was over: of what lay there when it came only what changed was counted."""
    size = len(batch())
    produce(world)
    pending = fetch(world, ask(), ask(tp=T1), wait_ms=500, min_bytes=2 * size)
    assert isinstance(pending, Pending)
    produce(world, tp=T1)
    assert [offsets(r) for r in pending.result()] == [[0], [0]]


def test_waiting_for_many_bytes_counts_those_of_a_partition_once(world: World) -> None:
    size = len(batch())
    produce(world)
    pending = fetch(world, ask(), ask(tp=T1), wait_ms=500, min_bytes=4 * size)
    produce(world)
    produce(world, tp=T1)
    assert not pending.done()
    produce(world)
    assert [offsets(r) for r in pending.result()] == [[0, 1, 2], [0]]


class Bytes(int):
    """A number that counts how often something is added to it, or subtracted from it."""

    uses = 0

    def __radd__(self, other: int) -> int:
        type(self).uses += 1
        return int(self) + other

    def __sub__(self, other: int) -> int:
        type(self).uses += 1
        return int(self) - other


def test_a_change_costs_a_waiting_fetch_no_more_for_its_other_partitions(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each append the bytes of all its partitions were added up: a client chooses how many these are."""
    asks = [ask(tp=TopicPartition("flights", number)) for number in range(100)]
    source, pending = Sessionless(asks), world.replicas.hosted.new_pending()
    monkeypatch.setattr(Fetching, "available", lambda *_: Bytes(3))
    waiting = DelayedFetch(world.replicas.fetching, FetchParams(500, 200, MB), source, pending, {})
    assert list(map(waiting.is_ready, source.keys())) == [False] * 66 + [True] * 34
    assert Bytes.uses == len(asks)
