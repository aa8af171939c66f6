"""Replicas that have no log because their process cannot open one, and topics whose log cannot be opened at all."""

import asyncio
import uuid
from typing import Any

import pytest

from logyard.broker.errors import ErrorCode, StorageError
from logyard.broker.model import TopicPartition
from tests.support.moving_replicas import A0, CONFIG, ONE, TWO, Broker, led
from tests.support.replica_world import T0, T1, ControlledWorld, errors, stop


@pytest.fixture
def world() -> ControlledWorld:
    return ControlledWorld()


def out_of_descriptors() -> Any:
    trouble = StorageError("too many open files")
    trouble.is_passing = True
    return trouble


@pytest.mark.parametrize("leader", [1, 2])
async def test_a_replica_without_a_descriptor_left_is_asked_for_when_there_is_one(
    world: ControlledWorld, leader: int
) -> None:
    """The controller takes it for one on a failed directory and has it stopped: it sends no more orders by itself."""
    asked: list[int] = []
    world.replicas.requests.missing_logs.opened = lambda: asked.append(len(world.logs.logs))
    world.logs.failing[T0] = out_of_descriptors()
    orders = world.order(leader=leader), world.order(T1, leader=2)
    assert errors(world.tell(*orders)) == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    assert errors(stop(world)) == [ErrorCode.NONE]
    world.advance(30_000)
    assert asked == []
    assert (await world.replicas.gauges())["offline_replica_count"] == 0
    world.logs.failing.clear()
    world.advance(30_000)
    assert asked == [2], "once, when both have a log"
    again = world.order(leader=2, leader_epoch=1), world.order(T1, leader=2)
    assert errors(world.tell(*again)) == [ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH]
    assert [tp for kind, tp, *_ in world.fetching.log if kind == "start"] == [T1, T0]


def test_of_very_many_replicas_without_a_log_one_is_tried(world: ControlledWorld) -> None:
    """To make a log takes some milliseconds: the others are for the controller's orders, which take turns."""
    asked: list[int] = []
    world.replicas.requests.missing_logs.opened = lambda: asked.append(len(world.logs.logs))
    many = [TopicPartition("many", number) for number in range(50)]
    world.logs.failing.update(dict.fromkeys(many, out_of_descriptors()))
    world.tell(*(world.order(tp, leader=2) for tp in many))
    world.logs.failing.clear()
    world.advance(30_000)
    assert asked == [1]


def test_a_replica_that_has_a_log_goes_on_when_there_are_descriptors(world: ControlledWorld) -> None:
    """It was to keep its topic's id when there were none; that it has a log says nothing of descriptors."""
    asked: list[int] = []
    world.replicas.requests.missing_logs.opened = lambda: asked.append(1)
    order = world.order(leader=2, isr=(2,))
    world.tell(order)
    world.logs.disk.openings = 0
    topic_ids = {T0.topic: uuid.UUID(int=7)}
    assert errors(world.tell(order, topic_ids=topic_ids)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert errors(stop(world)) == [ErrorCode.NONE]
    world.advance(30_000)
    assert asked == []
    world.logs.disk.heal()
    world.advance(30_000)
    assert asked == [1]
    world.fetching.log.clear()
    assert errors(world.tell(order, topic_ids=topic_ids)) == [ErrorCode.NONE]
    assert world.fetching.log[-1] == ("start", T0, 2, 0)
    assert world.log(T0).topic_id == uuid.UUID(int=7)


@pytest.mark.parametrize("leaves", [True, False])
def test_a_later_order_of_the_controller_counts(world: ControlledWorld, leaves: Any) -> None:
    asked: list[int] = []
    world.replicas.requests.missing_logs.opened = lambda: asked.append(1)
    world.logs.failing[T0] = out_of_descriptors()
    world.tell(world.order(leader=2))
    world.logs.failing.clear()
    if leaves:
        stop(world, delete=True)
    else:
        world.tell(world.order(leader=3, leader_epoch=1))
    world.advance(30_000)
    started = [event[2] for event in world.fetching.log if event[0] == "start"]
    assert started == ([] if leaves else [3])
    assert asked == []
    assert (world.logs.get(T0) is None) is leaves


def test_a_broker_that_stops_tries_no_more(world: ControlledWorld) -> None:
    asked: list[int] = []
    world.replicas.requests.missing_logs.opened = lambda: asked.append(1)
    world.logs.failing[T0] = out_of_descriptors()
    world.tell(world.order(leader=2))
    world.logs.failing.clear()
    world.replicas.close()
    world.advance(30_000)
    assert asked == []


async def damaged() -> Broker:
    """A broker that has begun again with a log that it cannot open; it was ordered to lead it."""
    broker = await led()
    first = broker.log.segments[0]
    await broker.stop()
    broker.disk.restart()
    broker.disk.open(first.path(".log"), write=True).write_at(b"\xff" * 40, 0)
    broker.disk.remove(first.path(".index"))
    broker.disk.remove(f"{ONE}/.kafka_cleanshutdown")
    again = Broker(broker.disk)
    await again.store.load()
    assert again.store.logs.get(A0) is None
    assert again.lead(epoch=1) is ErrorCode.KAFKA_STORAGE_ERROR
    return again


async def test_a_topic_goes_whose_log_cannot_be_opened() -> None:
    """Its deletion failed until the broker was restarted, and failed again then: the controller sends orders first."""
    broker = await damaged()
    assert broker.delete() is ErrorCode.NONE
    assert broker.lead(topic_id=uuid.UUID(int=2)) is ErrorCode.NONE, "the next topic of that name"
    broker.write()
    await broker.stop()


async def test_a_replica_that_may_be_in_an_offline_directory_is_not_deleted() -> None:
    broker = await damaged()
    broker.disk.fail(TWO)
    broker.store.logs.get_or_create(TopicPartition("b", 0), None, CONFIG, is_new=True)
    await asyncio.sleep(0)
    assert broker.store.online_directories == (ONE,)
    assert broker.delete() is ErrorCode.KAFKA_STORAGE_ERROR
    broker.disk.heal()
    await broker.stop()
