"""Which partitions of `__transaction_state` the coordinator is told of, and what it then gives up."""

import asyncio
from collections.abc import Callable

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TRANSACTIONS_TOPIC, TopicPartition
from logyard.broker.transactions.leadership import StateLeadership
from tests.support.transaction_world import TP, TransactionWorld, every_answer


def deleted(leadership: StateLeadership, tp: TopicPartition) -> None:
    leadership.on_deleted(tp)


def lost(leadership: StateLeadership, tp: TopicPartition) -> None:
    leadership.on_follower(tp, 9)


@pytest.mark.parametrize("given_up", [deleted, lost])
@pytest.mark.parametrize("is_loaded", [True, False])
async def test_a_partition_that_is_given_up_or_deleted_is_unloaded(
    world: TransactionWorld, given_up: Callable[[StateLeadership, TopicPartition], None], is_loaded: bool
) -> None:
    """KAFKA-9235: a deleted one too, and while it is loaded."""
    producer = await world.begin("x", TP[0])
    world.links.unreachable = {1, 2}
    assert await world.end(producer) is ErrorCode.NONE
    if not is_loaded:
        world.log.replicated = False
        await world.elect(8)
        assert await every_answer(world) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    leadership = StateLeadership(world.coordinator)
    for number in range(3):
        given_up(leadership, TopicPartition(TRANSACTIONS_TOPIC, number))
    world.links.unreachable = set()
    world.log.replicated = True
    await asyncio.sleep(0.15)
    assert await every_answer(world) == {ErrorCode.NOT_COORDINATOR}
    assert world.links.sent == [], "its markers are not sent either"


async def test_other_topics_do_not_matter(world: TransactionWorld) -> None:
    producer = await world.begin("x", TP[0])
    leadership = StateLeadership(world.coordinator)
    for number in range(3):
        other = TopicPartition("t", number)
        leadership.on_leader(other, 9)
        leadership.on_follower(other, 9)
        leadership.on_deleted(other)
    assert await world.end(producer) is ErrorCode.NONE
    await world.settle()
    assert {marker.coordinator_epoch for _, marker in world.links.sent} == {5}
