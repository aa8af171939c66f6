"""Moves of replicas: every way to request one, every place to be interrupted, exact epochs (facts §5, §6)."""

from collections.abc import Callable

import pytest

from logyard.broker.controller.broker_requests.encoding import LEADER_AND_ISR
from logyard.broker.controller.effects import ZkMulti
from logyard.broker.controller.events import (
    AlterPartition,
    AlterReassignments,
    CreatePartitions,
    ElectionKind,
    ElectLeaders,
    IsrChange,
    ListReassignments,
    NewPartitions,
)
from logyard.broker.controller.settings import LEVEL_2_5
from logyard.broker.errors import ErrorCode
from logyard.broker.model import Assignment, TopicPartition
from logyard.broker.znodes import isr_notifications, partition_state, reassignments
from logyard.broker.znodes import topics as topic_znode
from logyard.broker.znodes.ops import Create, SetData
from tests.support.controller_moves import TP, move
from tests.support.controller_world import World


def assignment(world: World) -> Assignment:
    return world.topic("t").partitions[0]


@pytest.mark.parametrize(
    ("start", "targets", "expected"),
    [
        ((1, 2, 3), [(4, 2, 5, 3)], Assignment((4, 2, 5, 3, 1), (4, 5), (1,))),
        ((1, 2, 3), [(4, 5, 6)], Assignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))),
        ((1, 2, 3), [(4, 5, 6), (7, 8, 9)], Assignment((7, 8, 9, 1, 2, 3), (7, 8, 9), (1, 2, 3))),
        ((1, 2, 3), [(4, 5, 6), (7, 8, 9), (1, 2, 3)], Assignment((1, 2, 3))),
        ((1, 2, 3), [(3, 1, 2)], Assignment((3, 1, 2))),
    ],
)
def test_table_of_moves(start: tuple[int, ...], targets: list[tuple[int, ...]], expected: Assignment) -> None:
    now = Assignment(start)
    for target in targets:
        now = now.reassign_to(target)
    assert now == expected


async def test_a_whole_reassignment_by_znodes(six: World) -> None:
    topic_id = six.topic("t").topic_id
    assert await move(six, 4, 5, 6) is ErrorCode.NONE
    assert assignment(six) == Assignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    state = six.state("t")
    assert state is not None
    assert (state.leader, state.isr, state.leader_epoch) == (1, (1, 2, 3), 1)
    new = [p for r in six.brokers[5].told(LEADER_AND_ISR) for t in r["topic_states"] for p in t["partition_states"]]
    assert new[-1]["is_new"]
    assert new[-1]["adding_replicas"] == [4, 5, 6]
    listed = await six.controller.runner.ask(ListReassignments())
    assert listed == {TP: assignment(six)}

    await six.grow_isr("t", 0, 1, 2, 3, 4)
    assert assignment(six).is_reassigning
    await six.grow_isr("t", 0, 1, 2, 3, 4, 5, 6)
    assert assignment(six) == Assignment((4, 5, 6))
    state = six.state("t")
    assert state is not None
    assert (state.leader, state.isr) == (4, (4, 5, 6))
    assert six.topic("t").topic_id == topic_id
    assert [six.brokers[b].deleted for b in range(1, 7)] == [[TP], [TP], [TP], [], [], []]
    assert await six.controller.runner.ask(ListReassignments()) == {}
    assert six.brokers[2].metadata[TP]["replicas"] == [4, 5, 6]


async def test_one_replica_to_another_costs_three_epochs(world: World) -> None:
    await world.make_topic("t", (1,))
    await move(world, 2)
    await world.grow_isr("t", 0, 1, 2)
    state = world.state("t")
    assert state is not None
    assert (state.leader, state.isr, state.leader_epoch) == (2, (2,), 3)


async def test_target_that_is_offline_waits_and_costs_four(world: World) -> None:
    await world.make_topic("t", (1,))
    await world.kill(3)
    world.make(reassignments.PATH, reassignments.encode({TP: (3,)}))
    await world.settle()
    state = world.state("t")
    assert state is not None
    assert (state.leader, state.leader_epoch) == (1, 1)
    assert world.read(reassignments.PATH) is not None
    await world.start(3)
    await world.grow_isr("t", 0, 1, 3)
    state = world.state("t")
    assert state is not None
    assert (state.leader, state.isr, state.leader_epoch) == (3, (3,), 4)
    assert world.read(reassignments.PATH) is None


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((-1, 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((9, 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
async def test_refused(six: World, target: tuple[int, ...], code: ErrorCode) -> None:
    assert await move(six, *target) is code
    assert assignment(six) == Assignment((1, 2, 3))


async def test_empty_target_is_refused(six: World) -> None:
    outcomes = await six.controller.runner.ask(AlterReassignments(((TP, ()),)))
    assert outcomes[TP].error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("tp", [TopicPartition("t", 9), TopicPartition("u", 0)])
async def test_unknown_partition(six: World, tp: TopicPartition) -> None:
    assert await move(six, 1, 2, tp=tp) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_dead_brokers_may_stay_but_not_be_added(six: World) -> None:
    await six.kill(3)
    assert await move(six, 1, 2, 3, 4) is ErrorCode.NONE
    await six.kill(5)
    assert await move(six, 1, 2, 3, 5) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


async def test_cancel_deletes_what_was_added(six: World) -> None:
    await move(six, 4, 5, 6)
    assert await move(six) is ErrorCode.NONE
    assert assignment(six) == Assignment((1, 2, 3))
    assert [six.brokers[b].deleted for b in (1, 2, 3, 4, 5, 6)] == [[], [], [], [TP], [TP], [TP]]
    state = six.state("t")
    assert state is not None
    assert (state.leader, state.isr) == (1, (1, 2, 3))


async def test_cancel_that_would_delete_the_only_in_sync_replica_is_refused(six: World) -> None:
    await six.make_topic("u", (2,))
    tp = TopicPartition("u", 0)
    await move(six, 4, 5, tp=tp)
    await six.grow_isr("u", 0, 2, 4)
    await six.kill(2)
    state = six.state("u")
    assert state is not None
    assert (state.leader, state.isr) == (4, (4,))
    assert await move(six, tp=tp) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert await move(six, 3, tp=tp) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert six.brokers[4].deleted == []
    await six.start(2)
    await six.grow_isr("u", 0, 4, 2)
    assert await move(six, tp=tp) is ErrorCode.NONE
    assert six.topic("u").partitions[0] == Assignment((2,))


async def test_superseding_a_move_whose_added_replica_leads(six: World) -> None:
    await move(six, 4, 5, 6)
    await six.grow_isr("t", 0, 1, 2, 3, 4)
    await six.controller.runner.ask(ElectLeaders(ElectionKind.PREFERRED, (TP,)))
    await six.settle()
    state = six.state("t")
    assert state is not None
    assert state.leader == 4
    assert await move(six, 5, 2) is ErrorCode.NONE
    state = six.state("t")
    assert state is not None
    assert (state.leader, state.isr) == (2, (1, 2, 3))
    assert six.brokers[5].metadata[TP]["leader"] == 2


async def test_later_move_supersedes(six: World) -> None:
    await move(six, 4, 5, 6)
    await move(six, 4, 2, 3)
    assert assignment(six) == Assignment((4, 2, 3, 1), (4,), (1,))
    assert [six.brokers[b].deleted for b in (4, 5, 6)] == [[], [TP], [TP]]
    await six.grow_isr("t", 0, 1, 2, 3, 4)
    assert assignment(six) == Assignment((4, 2, 3))


async def test_change_of_order_only(six: World) -> None:
    assert await move(six, 3, 1, 2) is ErrorCode.NONE
    assert assignment(six) == Assignment((3, 1, 2))
    assert all(not six.brokers[b].deleted for b in (1, 2, 3))


async def test_invalid_entries_of_the_znode_are_dropped(six: World) -> None:
    await six.make_topic("u", (1, 2))
    targets = {TP: (4, 2, 3), TopicPartition("nope", 0): (1,), TopicPartition("u", 0): (2, 2)}
    six.make(reassignments.PATH, reassignments.encode(targets))
    await six.settle()
    assert reassignments.decode(six.read(reassignments.PATH) or b"") == {TP: (4, 2, 3)}
    await six.grow_isr("t", 0, 1, 2, 3, 4)
    assert six.read(reassignments.PATH) is None
    assert assignment(six) == Assignment((4, 2, 3))
    # the next one is noticed
    six.make(reassignments.PATH, reassignments.encode({TP: (1, 2, 3)}))
    await six.settle()
    assert assignment(six).target == (1, 2, 3)


async def test_an_unreadable_znode_does_not_stop_moves(six: World) -> None:
    six.make(reassignments.PATH, b'{"version":1,"partitions":[{"topic":3}]}')
    await six.settle()
    assert await move(six, 2, 1, 3) is ErrorCode.NONE


async def test_the_api_takes_the_partition_out_of_the_znode(six: World) -> None:
    await six.make_topic("u", (1, 2))
    other = TopicPartition("u", 0)
    six.make(reassignments.PATH, reassignments.encode({TP: (4, 5, 6), other: (5, 6)}))
    await six.settle()
    await move(six, 4, 2, 3)
    assert reassignments.decode(six.read(reassignments.PATH) or b"") == {other: (5, 6)}
    epochs = six.state("u")
    assert epochs is not None
    assert epochs.leader_epoch == 1, "a rewritten znode does not begin running moves again"


async def test_a_new_controller_continues_the_move(six: World) -> None:
    await move(six, 4, 5, 6)
    await six.kill(1)
    assert six.controller.id == 2
    assert assignment(six).target == (4, 5, 6)
    await six.grow_isr("t", 0, 2, 3, 4, 5, 6)
    assert assignment(six) == Assignment((4, 5, 6))
    assert six.brokers[3].deleted == [TP]


@pytest.mark.parametrize("steps", range(1, 16))
async def test_controller_dies_after_any_write(make_world: Callable[..., World], steps: int) -> None:
    """Whatever transaction was the last one, the next controller finishes the move."""
    world = make_world()
    await world.start(1, 2, 3, 4)
    await world.make_topic("t", (2, 3))
    await move(world, 4, 3)
    leader = world.state("t")
    assert leader is not None
    world.brokers[1].die_after(steps)
    await world.grow_isr("t", 0, 2, 3, 4)
    await world.kill(1)
    assert world.controller.id == 2
    state = world.state("t")
    assert state is not None
    if assignment(world).is_reassigning and 4 not in state.isr:
        await world.grow_isr("t", 0, *state.isr, 4)
    assert assignment(world) == Assignment((4, 3))
    state = world.state("t")
    assert state is not None
    assert (state.leader, set(state.isr)) == (4, {3, 4})


async def test_growth_is_refused_while_moving(six: World) -> None:
    await move(six, 4, 5, 6)
    outcomes = await six.controller.runner.ask(CreatePartitions((NewPartitions("t", 2),)))
    assert outcomes["t"].error is ErrorCode.REASSIGNMENT_IN_PROGRESS


async def test_partitions_added_by_hand_meanwhile_are_kept(six: World) -> None:
    await move(six, 4, 5, 6)
    now = topic_znode.decode(six.read(topic_znode.topic_path("t")) or b"")
    grown = topic_znode.encode(type(now)({**now.partitions, 1: Assignment((2, 3))}, now.topic_id))
    six.set(topic_znode.topic_path("t"), grown)
    await six.grow_isr("t", 0, 1, 2, 3, 4, 5, 6)
    assert six.topic("t").partitions == {0: Assignment((4, 5, 6)), 1: Assignment((2, 3))}
    assert six.state("t", 1) is not None


# Below 2.7-IV2 leaders write their ISR themselves


@pytest.mark.parametrize("told_by", ["state", "notification"])
async def test_leaders_that_write_state_znodes_end_a_move(make_world: Callable[..., World], told_by: str) -> None:
    world = make_world(level=LEVEL_2_5)
    await world.start(1, 2, 3)
    await world.make_topic("t", (1, 2))
    assert await move(world, 3, 2) is ErrorCode.NONE
    state = world.state("t")
    assert state is not None
    if told_by == "notification":
        # A leader of a newer level beside this controller: the notice comes, the watch is gone with its session.
        world.controller.runner.data_watches.forget()
    grown = partition_state.encode(state._replace(isr=(1, 2, 3)))
    world.write(SetData(partition_state.path(TP), grown, state.partition_epoch))
    if told_by == "notification":
        notice = isr_notifications.encode([TP])
        world.write(Create(isr_notifications.SEQUENCE_PREFIX, notice, sequential=True))
    await world.settle()
    assert assignment(world) == Assignment((3, 2))
    after = world.state("t")
    assert after is not None
    assert (after.leader, after.isr) == (3, (2, 3))


async def test_a_topic_that_moves_as_a_whole_is_written_twice(make_world: Callable[..., World]) -> None:
    """Once for the beginning and once for the end, whatever the number of its partitions."""
    world = make_world()
    await world.start(1, 2, 3)
    await world.make_topic("t", *[(1, 2)] * 20)
    before = len(world.controller.effects)
    targets = tuple((TopicPartition("t", n), (3, 2)) for n in range(20))
    outcomes = await world.controller.runner.ask(AlterReassignments(targets))
    assert {o.error for o in outcomes.values()} == {ErrorCode.NONE}
    await world.settle()
    changes = []
    for number in range(20):
        state = world.state("t", number)
        assert state is not None
        changes.append(IsrChange(number, state.leader_epoch, (1, 2, 3), state.partition_epoch, topic="t"))
    leader = world.brokers[1]
    await world.controller.runner.ask(AlterPartition(1, leader.epoch, tuple(changes)))
    await world.settle()
    assert set(world.topic("t").partitions.values()) == {Assignment((3, 2))}
    path = topic_znode.topic_path("t")
    multis = [e for _, e in world.controller.effects[before:] if isinstance(e, ZkMulti)]
    written = [op for e in multis for ops in e.multis for op in ops if isinstance(op, SetData) and op.path == path]
    assert len(written) == 2
    assert len(world.brokers[1].deleted) == 20
    assert await world.controller.runner.ask(ListReassignments()) == {}


async def test_a_move_that_cannot_end_does_not_delay_the_others(six: World) -> None:
    await six.make_topic("u", (1, 2), (1, 2))
    stuck, free = TopicPartition("u", 0), TopicPartition("u", 1)
    outcomes = await six.controller.runner.ask(AlterReassignments(((stuck, (4, 2)), (free, (5, 2)))))
    assert {o.error for o in outcomes.values()} == {ErrorCode.NONE}
    await six.kill(4)
    await six.grow_isr("u", 1, 1, 2, 5)
    assert six.topic("u").partitions[1] == Assignment((5, 2))
    assert six.topic("u").partitions[0] == Assignment((4, 2, 1), (4,), (1,))
    await six.start(4)
    await six.grow_isr("u", 0, 1, 2, 4)
    assert six.topic("u").partitions[0] == Assignment((4, 2))
