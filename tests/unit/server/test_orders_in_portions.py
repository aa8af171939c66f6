"""The controller's requests: others are served between portions, and two requests never overlap."""

import asyncio
import itertools

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.metadata.updates import PartitionUpdate, UpdateMetadata
from logyard.broker.model import TopicPartition
from logyard.broker.portions import AT_ONCE
from logyard.broker.replication.events import LeaderAndIsr, PartitionErrors, StopReplica, StopReplicaPartition
from logyard.broker.server.controller_orders import ON_DISK, TURN, ControllerOrders, turns_of
from tests.support.replica_world import World

MANY = 300
TPS = [TopicPartition("wide", number) for number in range(MANY)]


class Turns:
    """Counts the turns of the event loop that were left for others."""

    def __init__(self, world: World) -> None:
        self.seen: list[int] = []
        """How many replicas were there in each."""
        self._world = world
        self._task = asyncio.ensure_future(self._count())

    async def _count(self) -> None:
        while True:
            self.seen.append(here(self._world))
            await asyncio.sleep(0)

    def stop(self) -> list[int]:
        self._task.cancel()
        return self.seen


def here(world: World) -> int:
    return sum(world.replicas.partition(tp) is not None for tp in TPS)


def lead(world: World, epoch: int = 1) -> LeaderAndIsr:
    return LeaderAndIsr(1, epoch, -1, tuple(world.order(tp, replicas=(1,)) for tp in TPS))


def delete(epoch: int = 1) -> StopReplica:
    return StopReplica(1, epoch, -1, tuple(StopReplicaPartition(tp, -2, True) for tp in TPS))


def told(orders: ControllerOrders, world: World, order: LeaderAndIsr) -> "asyncio.Task[PartitionErrors]":
    return asyncio.ensure_future(
        orders.lead_or_follow(world.replicas.requests, order, lambda tp: world.logs.get(tp) is not None)
    )


async def test_a_topic_of_many_partitions_is_made_and_deleted_a_few_replicas_a_turn() -> None:
    world, orders = World(), ControllerOrders()
    turns = Turns(world)
    outcome = await orders.lead_or_follow(world.replicas.requests, lead(world), lambda tp: False)
    assert list(outcome.partitions) == TPS
    assert set(outcome.partitions.values()) == {ErrorCode.NONE}
    made = turns.stop()
    assert {after - before for before, after in itertools.pairwise(made)} <= {0, TURN // ON_DISK}
    turns = Turns(world)
    outcome = await orders.stop(world.replicas.requests, delete())
    assert set(outcome.partitions.values()) == {ErrorCode.NONE}
    left = turns.stop()
    assert here(world) == 0
    assert {before - after for before, after in itertools.pairwise(left)} <= {0, TURN // ON_DISK}
    assert len(left) >= MANY // (TURN // ON_DISK) - 1


async def test_replicas_whose_logs_are_there_are_more_in_a_turn() -> None:
    world, orders = World(), ControllerOrders()
    await told(orders, world, lead(world))
    turns = Turns(world)
    again = LeaderAndIsr(1, 1, -1, tuple(world.order(tp, replicas=(1,), leader_epoch=1) for tp in TPS))
    await told(orders, world, again)
    assert MANY // TURN - 1 <= len(turns.stop()) <= MANY // TURN + 1


async def test_what_comes_meanwhile_waits_as_behind_kafkas_lock() -> None:
    world, orders = World(), ControllerOrders()
    first = told(orders, world, lead(world))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert 0 < here(world) < MANY
    last = asyncio.ensure_future(orders.stop(world.replicas.requests, delete(epoch=2)))
    newer = asyncio.ensure_future(orders.update(world.replicas.requests, UpdateMetadata(2, 2, -1, (), ())))
    outcome = await first
    assert outcome.error is ErrorCode.NONE
    await last
    assert await newer is ErrorCode.NONE
    assert here(world) == 0


async def test_the_rest_is_refused_when_this_broker_has_registered_anew() -> None:
    world, orders = World(), ControllerOrders()
    order = LeaderAndIsr(1, 1, 7, lead(world).partitions)
    running = told(orders, world, order)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    world.epoch = 8
    outcome = await running
    assert outcome.error is ErrorCode.STALE_BROKER_EPOCH
    assert 0 < here(world) < MANY


async def test_an_error_in_one_portion_keeps_the_others_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world, orders = World(), ControllerOrders()
    requests = world.replicas.requests
    work = requests.become_leader_or_follower

    def failing(order: LeaderAndIsr) -> PartitionErrors:
        if order.partitions[0].tp == TPS[TURN // ON_DISK]:
            raise RuntimeError("a bug")
        return work(order)

    monkeypatch.setattr(requests, "become_leader_or_follower", failing)
    with pytest.raises(RuntimeError, match="a bug"):
        await told(orders, world, lead(world))
    assert here(world) == MANY - TURN // ON_DISK
    assert (await orders.stop(requests, delete())).error is ErrorCode.NONE, "the lock is free"


async def test_an_order_about_nothing_still_tells_of_its_controller() -> None:
    world, orders = World(), ControllerOrders()
    outcome = await orders.stop(world.replicas.requests, StopReplica(1, 5, -1, ()))
    assert outcome.error is ErrorCode.NONE
    assert await orders.update(world.replicas.requests, UpdateMetadata(1, 4, -1, (), ())) is (
        ErrorCode.STALE_CONTROLLER_EPOCH
    )


def updates(leader: int) -> list[PartitionUpdate]:
    """Of many topics, more than one portion."""
    tps = [TopicPartition(f"t-{number // 4}", number % 4) for number in range(5 * AT_ONCE)]
    return [PartitionUpdate(tp, leader, 3, (leader,), (1, 2)) for tp in tps]


def leaders(world: World) -> set[int]:
    """Of all partitions that the world's metadata shows."""
    topics = world.metadata.topics()
    return {each.leader for topic in topics for each in world.metadata.partitions(topic).values()}


async def large(orders: ControllerOrders, world: World, epoch: int, leader: int, broker_epoch: int = -1) -> ErrorCode:
    update = UpdateMetadata(1, epoch, broker_epoch, (), ())
    return await orders.update_many(world.replicas.requests, update, iter(updates(leader)))


async def test_a_large_update_is_seen_as_a_whole_while_others_have_their_turns() -> None:
    world, orders = World(), ControllerOrders()
    before = world.metadata.version
    assert await large(orders, world, 4, 1) is ErrorCode.NONE
    running = asyncio.ensure_future(large(orders, world, 5, 2))
    seen = []
    while not running.done():
        await asyncio.sleep(0)
        seen.append((world.metadata.controller_epoch, leaders(world), world.metadata.version - before))
    assert await running is ErrorCode.NONE
    assert {epoch: (led, version) for epoch, led, version in seen} == {4: ({1}, 1), 5: ({2}, 2)}
    assert len({*map(str, seen)}) == 2, "nothing between the two"
    assert len(seen) > 5


async def test_updates_come_into_force_in_their_order() -> None:
    world, orders = World(), ControllerOrders()
    first = asyncio.ensure_future(large(orders, world, 4, 1))
    small = UpdateMetadata(1, 4, -1, tuple(updates(7)[:1]), ())
    await asyncio.sleep(0)
    second = asyncio.ensure_future(orders.update(world.replicas.requests, small))
    third = asyncio.ensure_future(large(orders, world, 5, 2))
    assert await first is ErrorCode.NONE
    assert await second is ErrorCode.NONE
    assert leaders(world) == {1, 7}
    assert await third is ErrorCode.NONE
    assert leaders(world) == {2}


@pytest.mark.parametrize("newer", ["controller", "registration"])
async def test_an_update_that_is_late_at_its_end_is_given_up(newer: str) -> None:
    world, orders = World(), ControllerOrders()
    assert await large(orders, world, 4, 1) is ErrorCode.NONE
    running = asyncio.ensure_future(large(orders, world, 5, 2, broker_epoch=7))
    for _ in range(3):
        await asyncio.sleep(0)
    if newer == "controller":
        assert world.replicas.requests.admit(LeaderAndIsr(2, 6, -1, ())) is ErrorCode.NONE
        refused = ErrorCode.STALE_CONTROLLER_EPOCH
    else:
        world.epoch = 8
        refused = ErrorCode.STALE_BROKER_EPOCH
    assert await running is refused
    assert leaders(world) == {1}
    assert await large(orders, world, 6, 3) is ErrorCode.NONE
    assert leaders(world) == {3}


async def test_a_broker_that_stops_has_nothing_of_a_large_update() -> None:
    world, orders = World(), ControllerOrders()
    assert await large(orders, world, 4, 1) is ErrorCode.NONE
    running = asyncio.ensure_future(large(orders, world, 4, 2))
    for _ in range(3):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert leaders(world) == {1}
    assert await large(orders, world, 4, 3) is ErrorCode.NONE, "the lock is free"


@pytest.mark.parametrize(
    ("costs", "sizes"),
    [([], [0]), ([1] * TURN, [TURN]), ([1] * (TURN + 1), [TURN, 1]), ([TURN + 1, 1], [1, 1]), ([10] * 25, [10, 10, 5])],
)
def test_portions(costs: list[int], sizes: list[int]) -> None:
    asked = tuple(StopReplicaPartition(TopicPartition("t", n), cost, False) for n, cost in enumerate(costs))
    found = list(turns_of(asked, lambda one: one.leader_epoch))
    assert [len(portion) for portion in found] == sizes
    assert tuple(one for portion in found for one in portion) == asked
