"""Moves written into topic znodes by hand, and topic ids that somebody dropped or changed."""

from uuid import UUID

import pytest

from logyard.broker.controller.broker_requests.encoding import LEADER_AND_ISR
from logyard.broker.controller.events import (
    ListReassignments,
)
from logyard.broker.model import Assignment, TopicAssignment, TopicPartition
from logyard.broker.znodes import topics as topic_znode
from tests.support.controller_moves import TP, move
from tests.support.controller_world import World


def written(world: World, assignment: Assignment) -> None:
    before = world.topic("t")
    content = TopicAssignment({**before.partitions, 0: assignment}, before.topic_id)
    world.set(topic_znode.topic_path("t"), topic_znode.encode(content))


async def test_a_move_written_into_the_topic_znode_begins_at_the_watch(six: World) -> None:
    written(six, Assignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3)))
    await six.settle()
    assert six.topic("t").partitions[0] == Assignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    moving = await six.controller.runner.ask(ListReassignments())
    assert moving == {TP: six.topic("t").partitions[0]}
    assert six.brokers[4].told(LEADER_AND_ISR), "the added replicas are started"
    await six.grow_isr("t", 0, 1, 2, 3, 4, 5, 6)
    assert six.topic("t").partitions[0] == Assignment((4, 5, 6))


async def test_a_written_move_supersedes_a_running_one(six: World) -> None:
    await move(six, 4, 2, 3)
    written(six, Assignment((5, 2, 3, 1), (5,), (1,)))
    await six.settle()
    assert six.topic("t").partitions[0] == Assignment((5, 2, 3, 1), (5,), (1,))
    assert TP in six.brokers[4].deleted


@pytest.mark.parametrize("stale", [Assignment((1, 2, 4), (1,), (2,)), Assignment((3, 2, 1))])
async def test_a_written_move_from_other_replicas_is_ignored(six: World, stale: Assignment) -> None:
    written(six, stale)
    await six.settle()
    assert await six.controller.runner.ask(ListReassignments()) == {}
    state = six.state("t")
    assert state is not None
    assert (state.leader, state.isr, state.leader_epoch) == (1, (1, 2, 3), 0)


async def test_a_new_topic_that_is_written_as_moving_ends_its_move(six: World) -> None:
    content = TopicAssignment({0: Assignment((4, 5, 1), (4,), (1,)), 1: Assignment((1, 2))})
    six.make(topic_znode.topic_path("u"), topic_znode.encode(content))
    await six.settle()
    assert six.topic("u").partitions == {0: Assignment((4, 5)), 1: Assignment((1, 2))}
    assert TopicPartition("u", 0) in six.brokers[1].deleted


async def test_a_partition_added_as_moving_ends_its_move(six: World) -> None:
    before = six.topic("t")
    content = TopicAssignment({**before.partitions, 1: Assignment((4, 5, 1), (4,), (1,))}, before.topic_id)
    six.set(topic_znode.topic_path("t"), topic_znode.encode(content))
    await six.settle()
    assert six.topic("t").partitions[1] == Assignment((4, 5))


async def test_an_id_that_an_old_tool_dropped_is_restored_with_its_new_partitions(six: World) -> None:
    topic_id = six.topic("t").topic_id
    six.set(topic_znode.topic_path("t"), b'{"version":1,"partitions":{"0":[1,2,3],"1":[2,3]}}')
    await six.settle()
    assert six.topic("t").topic_id == topic_id
    assert sorted(six.topic("t").partitions) == [0, 1]
    assert six.state("t", 1) is not None


async def test_a_changed_topic_id_is_restored(six: World) -> None:
    before = six.topic("t")
    changed = TopicAssignment({0: Assignment((4, 2, 3, 1), (4,), (1,))}, UUID(int=99))
    six.set(topic_znode.topic_path("t"), topic_znode.encode(changed))
    await six.settle()
    assert six.topic("t").topic_id == before.topic_id
    assert six.topic("t").partitions[0] == Assignment((4, 2, 3, 1), (4,), (1,)), "and the move written with it begins"
