"""What the controller does for all partitions it does some at a time, as it is a broker too, which has clients.

What is done between two turns of the loop is counted: how long it takes depends on the machine.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any
from uuid import UUID

import pytest

from logyard.broker.controller import brokers, effects, fencing
from logyard.broker.controller.broker_requests import partition_states
from logyard.broker.controller.broker_requests.batch import RequestBatch, StopReplicaRequest
from logyard.broker.controller.broker_requests.encoding import STOP_REPLICA, Encoder
from logyard.broker.controller.context import ControllerContext, Partition, PartitionPhase, Topic
from logyard.broker.controller.events import (
    AlterPartition,
    AlterReassignments,
    ControlledShutdown,
    CreatePartitions,
    DeleteTopics,
    IsrChange,
    NewPartitions,
    Outcome,
    ShutdownResult,
)
from logyard.broker.controller.partitions import requested_elections
from logyard.broker.controller.settings import ControllerSettings
from logyard.broker.controller.topics import deletion
from logyard.broker.errors import ErrorCode
from logyard.broker.model import Assignment, BrokerInfo, PartitionState, TopicAssignment, TopicPartition
from logyard.broker.portions import AT_ONCE
from logyard.broker.znodes import partition_state, topics
from logyard.broker.znodes.ops import Create
from tests.support.controller_world import World

PARTITIONS = 3 * AT_ONCE
# Between two turns there may be the end of one list and the beginning of the next.
AT_MOST = AT_ONCE + effects.DONE_PER_TURN


class Looking(ControllerContext):
    """Counts how many partitions are looked at."""

    looked = 0

    def partitions(self) -> Iterator[Partition]:
        for partition in super().partitions():
            self.looked += 1
            yield partition


def context_of(count: int) -> Looking:
    context = Looking(ControllerSettings(1), epoch=1, epoch_zk_version=1)
    for broker in (1, 2):
        context.brokers[broker] = BrokerInfo(broker, (), epoch=broker)
    topic = context.topics["t"] = Topic("t", None)
    for number in range(count):
        partition = Partition(TopicPartition("t", number), Assignment((1, 2)), PartitionState(1, 0, (1, 2), 1))
        partition.phase = PartitionPhase.ONLINE
        topic.partitions[number] = partition
    return context


@pytest.mark.parametrize(
    "procedure",
    [
        brokers.bring_online,
        lambda context: brokers.on_replicas_offline(context, []),
        requested_elections.on_imbalance_due,
    ],
)
def test_partitions_are_looked_at_some_at_a_time(procedure: Callable[[ControllerContext], effects.Steps[Any]]) -> None:
    context, before, most = context_of(PARTITIONS), 0, 0
    for _ in procedure(context):
        most, before = max(most, context.looked - before), context.looked
    most = max(most, context.looked - before)
    assert context.looked >= PARTITIONS
    assert most <= AT_MOST


async def test_a_broker_that_dies_and_returns_is_work_for_many_turns(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Orders to all its replicas, made in one turn, took 0.2 s for 100,000."""
    world = make_world()
    await world.start(1, 2, 3)
    await world.make_topic("t", *[(2, 1), (1, 2)] * (PARTITIONS // 2))
    performed = world.controller.effects
    done = Counter[tuple[str, int]]()
    for name in ("leader_and_isr", "stop_replica"):
        monkeypatch.setattr(RequestBatch, name, _counting(name, done, performed))
    await world.kill(2)
    await world.start(2)
    assert sum(done.values()) >= PARTITIONS
    assert max(done.values()) <= AT_MOST
    assert {state.leader for number in range(PARTITIONS) if (state := world.state("t", number))} == {1}


async def test_a_topic_is_deleted_some_partitions_at_a_time(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 100,000 partitions each look at the replicas took 80 to 130 ms, and so did the writes to ZooKeeper."""
    world = make_world()
    await world.start(1, 2, 3)
    await world.make_topic("t", *[(2, 1), (1, 2)] * (PARTITIONS // 2))
    performed = world.controller.effects
    done = Counter[tuple[str, int]]()
    for part, name in (
        (Partition, "replica_phase"),
        (ControllerContext, "is_live"),
        (ControllerContext, "partition"),
        (deletion, "Delete"),
        (fencing, "_size"),
        (partition_states, "ErrorCode"),
    ):
        monkeypatch.setattr(part, name, _counting(name, done, performed, part))
    await world.controller.runner.ask(DeleteTopics(("t",)))
    await world.settle()
    assert world.read(topics.topic_path("t")) is None
    assert "t" not in world.controller.runner.context.topics
    totals = Counter[str]()
    for (name, _), count in done.items():
        totals[name] += count
    assert len(totals) == 6
    assert min(totals.values()) >= 2 * PARTITIONS
    # Each partition has two replicas, and two znodes.
    assert max(done.values()) <= 2 * AT_MOST


async def test_isrs_are_changed_some_at_a_time(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader may name all its partitions in one request: of 100,000 the looks and the writes took a second."""
    world = make_world()
    await world.start(1, 2, 3)
    await world.make_topic("t", *[(2, 3)] * PARTITIONS)
    states = [world.state("t", number) for number in range(PARTITIONS)]
    changes = tuple(
        IsrChange(number, state.leader_epoch, (2,), state.partition_epoch, topic="t")
        for number, state in enumerate(states)
        if state is not None
    )
    done = _counted(world, monkeypatch, (ControllerContext, "partition"), (partition_state, "encode"))
    answer = await world.controller.runner.ask(AlterPartition(2, world.brokers[2].epoch, changes))
    assert [altered.error for altered in answer.partitions] == [ErrorCode.NONE] * PARTITIONS
    assert {state.isr for number in range(PARTITIONS) if (state := world.state("t", number))} == {(2,)}
    assert max(done.values()) <= AT_MOST
    assert {name for name, _ in done} == {"partition", "encode"}


async def test_moves_begin_and_are_cancelled_some_at_a_time(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 100,000 partitions, which a client may name in one request, the longest turn took half a second."""
    world = make_world()
    await world.start(1, 2, 3)
    await world.make_topic("t", *[(1, 2)] * PARTITIONS)
    looks = ((ControllerContext, "partition"), (ControllerContext, "is_online"), (Partition, "replica_phase"))
    done = _counted(world, monkeypatch, *looks, (RequestBatch, "leader_and_isr"))
    parts = [TopicPartition("t", number) for number in range(PARTITIONS)]
    for target in ((1, 3), None):
        outcomes = await world.controller.runner.ask(AlterReassignments([(tp, target) for tp in parts]))
        assert set(outcomes.values()) == {Outcome()}
        assert list(outcomes) == parts
    await world.settle()
    assert not world.controller.runner.context.reassigning
    # An order to the old replicas of a partition, and one to its new ones.
    assert max(done.values()) <= 2 * AT_MOST
    assert {name for name, _ in done} == {"partition", "is_online", "replica_phase", "leader_and_isr"}


async def test_a_broker_leaves_some_partitions_at_a_time(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 100,000 partitions the longest turn took 0.15 s."""
    world = make_world()
    await world.start(1, 2, 3)
    await world.make_topic("t", *[(2, 1), (1, 2)] * (PARTITIONS // 2))
    done = _counted(world, monkeypatch, (ControllerContext, "is_deleting"), (RequestBatch, "stop_replica"))
    answer = await world.controller.runner.ask(ControlledShutdown(2, world.brokers[2].epoch))
    assert answer == ShutdownResult()
    assert max(done.values()) <= AT_MOST
    assert {name for name, _ in done} == {"is_deleting", "stop_replica"}


async def test_topics_grow_some_at_a_time(make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    """The znodes of all topics that a request names were made in one turn."""
    world = make_world()
    await world.start(1)
    names = [f"t{number}" for number in range(1000)]
    for name in names:
        content = TopicAssignment({0: Assignment((1,))}, UUID(int=1 + int(name[1:])))
        world.write(Create(topics.topic_path(name), topics.encode(content)))
    await world.settle()
    done = _counted(world, monkeypatch, (topics, "encode"))
    grown = CreatePartitions([NewPartitions(name, 2) for name in names])
    assert set((await world.controller.runner.ask(grown)).values()) == {Outcome()}
    assert max(done.values()) <= AT_ONCE // 2
    assert sum(done.values()) == len(names)
    await world.settle()
    assert {len(topic.partitions) for topic in world.controller.runner.context.topics.values()} == {2}


def _counted(world: World, monkeypatch: pytest.MonkeyPatch, *looks: tuple[object, str]) -> Counter[tuple[str, int]]:
    """Count from now on how often each of these is called between two effects."""
    done = Counter[tuple[str, int]]()
    for part, name in looks:
        monkeypatch.setattr(part, name, _counting(name, done, world.controller.effects, part))
    return done


def _counting(
    name: str, done: Counter[tuple[str, int]], performed: Sized, part: object = RequestBatch
) -> Callable[..., Any]:
    """The method of a batch, or of another part, which counts how often it is called between two effects."""
    real: Callable[..., Any] = getattr(part, name)

    def counted(*args: Any, **kwargs: Any) -> Any:
        done[name, len(performed)] += 1
        return real(*args, **kwargs)

    return counted


def test_what_is_deleted_is_named_and_encoded_some_at_a_time() -> None:
    """A StopReplica of 100,000 replicas was made and encoded in one turn."""
    context = context_of(PARTITIONS)
    context.deleting["t"] = None
    batch = RequestBatch(context)
    for partition in context.partitions():
        batch.stop_replica(2, partition, delete=True)
    assert len(list(batch.prepare())) >= PARTITIONS // AT_ONCE
    (stop,) = batch.each()
    assert isinstance(stop, StopReplicaRequest)
    assert stop.topic_deletions == tuple(TopicPartition("t", number) for number in range(PARTITIONS))
    encoder = Encoder(context.settings.level)
    api_key, _, fields = encoder.encode(stop)
    assert api_key == STOP_REPLICA
    costs = list(encoder.write_ahead(fields))
    assert sum(costs) >= PARTITIONS
    assert max(costs) <= AT_ONCE


class Watched(dict[TopicPartition, None]):
    """Notes how many partitions are looked at."""

    def __init__(self, tps: Iterable[TopicPartition], done: Counter[tuple[str, int]], performed: Sized) -> None:
        super().__init__(dict.fromkeys(tps))
        self._done, self._performed = done, performed

    def __iter__(self) -> Iterator[TopicPartition]:
        self._done["looked at", len(self._performed)] += len(self)
        return super().__iter__()


async def test_topics_are_forgotten_without_a_look_at_the_moves_of_others(make_world: Callable[..., World]) -> None:
    """Each looked at all that were moving: of 1000 topics beside 10,000 moves that took 0.15 s in one turn."""
    world = make_world()
    await world.start(1, 2, 3)
    names = [f"gone-{number}" for number in range(20)]
    for name in names:
        world.make(topics.topic_path(name), world.topic_data([(2, 1)]))
    await world.make_topic("moving", (1, 2))
    context, done = world.controller.runner.context, Counter[tuple[str, int]]()
    tps = [TopicPartition("moving", number) for number in range(PARTITIONS)]
    context.reassigning = Watched(tps, done, world.controller.effects)
    await world.controller.runner.ask(DeleteTopics(tuple(names)))
    await world.settle()
    assert [name for name in names if name in context.topics] == []
    # A request looks once for those that end with their topics.
    assert max(done.values(), default=0) <= 2 * PARTITIONS
    for name in names:
        world.make(topics.topic_path(name), world.topic_data([(2, 1)]))
    await world.settle()
    done.clear()
    for name in names:
        for path in (partition_state.path(TopicPartition(name, 0)), topics.partition_path(name, 0)):
            world.remove(path)
        world.remove(topics.partitions_path(name))
        world.remove(topics.topic_path(name))
    await world.settle()
    assert [name for name in names if name in context.topics] == []
    assert max(done.values(), default=0) <= 2 * PARTITIONS
    context.reassigning.clear()
