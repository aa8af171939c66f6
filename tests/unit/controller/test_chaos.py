"""Random requests and faults, by seed: afterwards nothing is left half-done and all invariants hold."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from logyard.broker.controller.events import (
    AlterReassignments,
    ControlledShutdown,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectionKind,
    ElectLeaders,
    NewPartitions,
    NewTopic,
)
from logyard.broker.controller.runner import ControllerRunner
from logyard.broker.errors import ApiError
from logyard.broker.model import TopicAssignment, TopicPartition
from logyard.broker.znodes import delete_topics, preferred_election, reassignments
from logyard.broker.znodes import topics as topic_znode
from logyard.broker.znodes.ops import Create
from tests.support.controller_invariants import History
from tests.support.controller_world import ScriptedBroker, World

BROKERS = (1, 2, 3, 4)
TOPICS = ("a", "b", "c")


class Chaos:
    """Does random things to a world."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.waiting: list[asyncio.Future[object]] = []
        self.done: list[str] = []

    def ask(self, call: Callable[[ControllerRunner], Awaitable[object]]) -> None:
        """Ask any broker, without waiting."""
        runner = self.random.choice(list(self.world.brokers.values())).runner
        self.waiting.append(asyncio.ensure_future(call(runner)))

    def replicas(self) -> tuple[int, ...]:
        return tuple(self.random.sample(BROKERS, self.random.randint(1, 3)))

    def tp(self) -> TopicPartition:
        return TopicPartition(self.random.choice(TOPICS), self.random.randint(0, 2))

    async def step(self) -> None:
        what = self.random.choice([n for n in dir(self) if n.startswith("do_")])
        self.done.append(what)
        result = getattr(self, what)()
        if result is not None:
            await result
        for _ in range(self.random.choice((0, 1, 3, 10, 40, 200))):
            await asyncio.sleep(0)

    def do_create(self) -> None:
        topic = NewTopic(self.random.choice(TOPICS), self.random.randint(1, 3), self.random.randint(1, 2))
        self.ask(lambda runner: runner.ask(CreateTopics((topic,))))

    def do_create_by_hand(self) -> None:
        path = topic_znode.topic_path(self.random.choice(TOPICS))
        if self.world.read(path) is None:
            self.world.write(Create(path, self.world.topic_data([self.replicas() for _ in range(2)])))

    def do_delete(self) -> None:
        name = self.random.choice(TOPICS)
        self.ask(lambda runner: runner.ask(DeleteTopics((name,))))

    def do_grow(self) -> None:
        wanted = NewPartitions(self.random.choice(TOPICS), self.random.randint(1, 4))
        self.ask(lambda runner: runner.ask(CreatePartitions((wanted,))))

    def do_move(self) -> None:
        targets = ((self.tp(), self.replicas()), (self.tp(), None))
        self.ask(lambda runner: runner.ask(AlterReassignments(targets)))

    def do_move_by_hand(self) -> None:
        if self.world.read(reassignments.PATH) is None:
            self.world.make(reassignments.PATH, reassignments.encode({self.tp(): self.replicas()}))

    def do_move_in_the_topic_znode(self) -> None:
        name = self.random.choice(TOPICS)
        if self.world.read(topic_znode.topic_path(name)) is not None:
            found = self.world.topic(name)
            number = self.random.choice(list(found.partitions))
            moved = {**found.partitions, number: found.partitions[number].reassign_to(self.replicas())}
            # As an old tool would: whatever the version, and without the topic's id.
            topic_id = self.random.choice((None, found.topic_id))
            content = topic_znode.encode(TopicAssignment(moved, topic_id))
            self.world.set(topic_znode.topic_path(name), content)

    def do_elect(self) -> None:
        kind = self.random.choice(list(ElectionKind))
        self.ask(lambda runner: runner.ask(ElectLeaders(kind)))

    def do_elect_by_hand(self) -> None:
        if self.world.read(preferred_election.PATH) is None:
            self.world.make(preferred_election.PATH, preferred_election.encode([self.tp(), self.tp()]))

    def do_shut_down(self) -> None:
        broker = self.random.choice(list(self.world.brokers.values()))
        self.ask(lambda runner: runner.ask(ControlledShutdown(broker.id, broker.epoch)))

    async def do_kill(self) -> None:
        if len(self.world.brokers) > 1:
            await self.world.brokers[self.random.choice(list(self.world.brokers))].die()

    async def do_start(self) -> None:
        missing = [b for b in BROKERS if b not in self.world.brokers]
        if missing:
            broker = ScriptedBroker(self.world, self.random.choice(missing))
            self.world.brokers[broker.id] = broker
            await broker.start()

    def do_expire(self) -> None:
        broker = self.random.choice(list(self.world.brokers.values()))
        self.world.tree.expire(broker.zk.session_id)

    def do_lose_replies(self) -> None:
        broker = self.random.choice(list(self.world.brokers.values()))
        broker.zk.lose_replies(self.random.randint(1, 3))

    def do_depose(self) -> None:
        if self.world.read("/controller") is not None:
            self.world.remove("/controller")

    async def do_in_sync(self) -> None:
        await in_sync(self.world)


async def in_sync(world: World) -> None:
    """Let every leader report all its live replicas as in sync, if that is new."""
    active = [b for b in world.brokers.values() if b.runner.is_active]
    for topic in world.tree.children("/brokers/topics") or []:
        if world.read(topic_znode.topic_path(topic)) is None:
            continue  # gone while another's leader was reporting
        for partition, assignment in world.topic(topic).partitions.items():
            state = world.state(topic, partition)
            if state is None or state.leader not in world.brokers or not active:
                continue
            members = [b for b in assignment.replicas if b in world.brokers and b not in state.isr]
            if members:
                try:
                    await world.grow_isr(topic, partition, *state.isr, *members)
                except (AssertionError, ApiError):
                    continue  # overtaken by something else


async def make_good(world: World) -> None:
    """Restart every broker that is dead or leaving, and let leaders catch up until nothing changes."""
    for broker_id in BROKERS:
        broker = world.brokers.get(broker_id)
        if broker is None:
            await world.start(broker_id)
    for broker_id in BROKERS:
        # a broker that has asked to leave does leave, and comes back
        await world.kill(broker_id)
        await world.start(broker_id)
    for _ in range(8):
        await in_sync(world)
        await world.settle()


@pytest.mark.parametrize("seed", range(40))
async def test_chaos(make_world: Callable[..., World], seed: int) -> None:
    world = make_world()
    history = History(world)
    await world.start(1, 2, 3)
    await world.make_topic("a", (1, 2, 3), (2, 3))
    await world.make_topic("b", (3, 1))
    chaos = Chaos(world, seed)
    for _ in range(40):
        await chaos.step()
    await world.settle()
    outcomes = await asyncio.gather(*chaos.waiting, return_exceptions=True)
    assert all(isinstance(o, ApiError) for o in outcomes if isinstance(o, BaseException)), outcomes
    await make_good(world)

    story = " ".join(chaos.done)
    assert history.writes > 0, story
    assert world.controller.runner.epoch > 0
    assert world.tree.children(delete_topics.PATH) == [], story
    assert world.read(reassignments.PATH) is None, story
    assert world.read(preferred_election.PATH) is None, story
    for topic in world.tree.children("/brokers/topics") or []:
        found = world.topic(topic)
        assert found.topic_id is not None
        for partition, assignment in found.partitions.items():
            state = world.state(topic, partition)
            assert state is not None, f"{topic}-{partition}: {story}"
            assert state.leader in assignment.replicas, f"{topic}-{partition} {state}: {story}"
            assert set(state.isr) == set(assignment.replicas), f"{topic}-{partition} {state}: {story}"
            assert not assignment.is_reassigning, f"{topic}-{partition} {assignment}: {story}"
            for broker in world.brokers.values():
                seen = broker.metadata[TopicPartition(topic, partition)]
                assert (seen["leader"], seen["leader_epoch"]) == (state.leader, state.leader_epoch), story
