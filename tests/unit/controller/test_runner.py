"""End to end over ZooKeeper in memory: from a topic znode to the requests to every broker."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from logyard.broker.controller import dispatch, gauges, runner
from logyard.broker.controller.broker_requests.encoding import LEADER_AND_ISR, UPDATE_METADATA
from logyard.broker.controller.broker_requests.partition_states import PartitionCodes
from logyard.broker.controller.events import CreateTopics, LeaderAndIsrAnswered, NewTopic, UncleanElectionEnabled
from logyard.broker.errors import ErrorCode, LogyardError
from logyard.broker.model import PartitionState, TopicPartition
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.znodes import configs, feature
from logyard.broker.znodes.ops import Watcher
from tests.support.controller_world import World


async def test_first_broker_becomes_controller_with_epoch_one(world: World) -> None:
    assert world.controller.id == 1
    assert world.controller.runner.epoch == 1
    assert world.read("/controller_epoch") == b"1"
    assert [world.brokers[b].runner.active_id for b in (1, 2, 3)] == [1, 1, 1]
    assert world.read(feature.PATH) == b'{"version":2,"status":1,"features":{}}'


async def test_a_topic_created_by_hand_gets_leaders(world: World) -> None:
    await world.make_topic("t", (1, 2, 3), (2, 3, 1))
    assert world.state("t", 0) == PartitionState(1, 0, (1, 2, 3), 1)
    assert world.state("t", 1) == PartitionState(2, 0, (2, 3, 1), 1)
    topic_id = world.topic("t").topic_id
    assert topic_id is not None
    for broker in world.brokers.values():
        (request,) = broker.told(LEADER_AND_ISR)
        (topic,) = request["topic_states"]
        assert topic["topic_id"] == topic_id
        assert [p["is_new"] for p in topic["partition_states"]] == [True, True]
        assert request["controller_epoch"] == 1
        assert broker.metadata[TopicPartition("t", 1)]["leader"] == 2
        last = broker.told(UPDATE_METADATA)[-1]
        assert [b["id"] for b in last["live_brokers"]] == [1, 2, 3]


@pytest.mark.parametrize("call", ["children_and_watch", "read_and_watch"])
async def test_a_watch_that_zookeeper_refuses_is_set_later(
    world: World, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A throttled server, or rights that are being changed: nothing else would tell the controller of topics again."""
    monkeypatch.setattr(runner, "AFTER_REFUSAL_S", 0.01)
    refused: list[str] = []
    zk = world.controller.zk
    work = getattr(zk, call)

    async def refusing_once(path: str, watcher: Watcher) -> Any:
        if not refused:
            refused.append(path)
            raise LogyardError("ZooKeeper refuses a request")
        return await work(path, watcher)

    monkeypatch.setattr(zk, call, refusing_once)
    for name in ("a", "b"):
        await world.make_topic(name, (1, 2, 3))
    async with asyncio.timeout(5):
        while not (world.state("a") and world.state("b")):
            await asyncio.sleep(0.01)
    assert refused
    await world.make_topic("c", (1, 2, 3))
    assert world.state("c")
    more = world.topic_data([(1, 2, 3), (2, 3, 1)], world.topic("a").topic_id)
    world.set("/brokers/topics/a", more)
    await world.settle()
    assert world.state("a", 1)


async def test_a_candidate_stands_although_zookeeper_has_refused_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "AFTER_REFUSAL_S", 0.01)
    refused: list[str] = []
    world = World()
    work = MemoryZooKeeper.read_and_watch

    async def refusing_once(zk: MemoryZooKeeper, path: str, watcher: Watcher) -> Any:
        if not refused:
            refused.append(path)
            raise LogyardError("ZooKeeper refuses a request")
        return await work(zk, path, watcher)

    monkeypatch.setattr(MemoryZooKeeper, "read_and_watch", refusing_once)
    await world.start(1)
    async with asyncio.timeout(5):
        while not world.brokers[1].runner.is_active:
            await asyncio.sleep(0.01)
    assert refused
    await world.stop()


async def test_an_answer_whose_procedure_is_refused_comes_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers need not be hashable; an error in telling of an error would end the controller."""
    monkeypatch.setattr(runner, "AFTER_REFUSAL_S", 0.01)
    handled = asyncio.Event()
    calls: list[Any] = []

    def refused_once(context: Any, event: Any) -> Any:
        calls.append(event)
        if len(calls) == 1:
            raise LogyardError("ZooKeeper refuses a request")
        handled.set()
        return work(context, event)

    work = dispatch.HANDLERS[LeaderAndIsrAnswered]
    monkeypatch.setitem(dispatch.HANDLERS, LeaderAndIsrAnswered, refused_once)
    codes = PartitionCodes(SimpleNamespace(error_code=0))
    world.controller.runner.queue.put(LeaderAndIsrAnswered(1, 1, ErrorCode.NONE, codes))
    async with asyncio.timeout(5):
        await handled.wait()
    await world.make_topic("t", (1, 2, 3))
    assert world.state("t")


async def test_create_topic_by_request(world: World) -> None:
    (created,) = await world.controller.runner.ask(
        CreateTopics((NewTopic("flights", 6, 3, configs={"cleanup.policy": "compact"}),))
    )
    assert (created.error, created.num_partitions, created.replication_factor) == (0, 6, 3)
    await world.settle()
    assert world.topic("flights").topic_id == created.topic_id
    assert configs.decode(world.read(configs.topic_path("flights")) or b"") == {"cleanup.policy": "compact"}
    states = [world.state("flights", p) for p in range(6)]
    assert [s and s.leader for s in states] == [1, 2, 3, 1, 2, 3]
    assert all(len(world.brokers[b].metadata) == 6 for b in (1, 2, 3))


async def test_controller_that_was_leader_dies(world: World) -> None:
    await world.make_topic("t", (1, 2, 3))
    await world.kill(1)
    assert world.controller.id == 2
    assert world.controller.runner.epoch == 2
    # -1 by taking the dead replica offline, then the election (facts §5)
    assert world.state("t") == PartitionState(2, 2, (2, 3), 2, 2)
    assert world.brokers[3].metadata[TopicPartition("t", 0)]["leader"] == 2


async def test_leader_dies_and_controller_lives(make_world: Callable[..., World]) -> None:
    world = make_world()
    await world.start(1, 2, 3)
    await world.make_topic("t", (3, 2))
    await world.kill(3)
    assert world.state("t") == PartitionState(2, 1, (2,), 1, 1)
    await world.start(3)
    assert world.state("t") == PartitionState(2, 1, (2,), 1, 1)
    told = world.brokers[3].told(LEADER_AND_ISR)
    assert [p["leader"] for r in told for t in r["topic_states"] for p in t["partition_states"]] == [2]


def test_the_gauge_of_an_unclean_election_tells_one_topic_from_all() -> None:
    assert [dispatch.state_of(UncleanElectionEnabled(topic)) for topic in (None, "t")] == [13, 14]


async def test_gauges_are_counted_again_only_after_an_event(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = world.controller.runner
    before = await runner.gauges()
    assert (before["GlobalPartitionCount"], before["ActiveControllerCount"]) == (0, 1)
    await world.make_topic("t", (1, 2), (9,))
    read = mock.Mock(wraps=gauges.read)
    monkeypatch.setattr(gauges, "read", read)
    after = await runner.gauges()
    assert (after["GlobalPartitionCount"], after["OfflinePartitionsCount"]) == (2, 1)
    assert await runner.gauges() == after
    assert read.call_count == 1
    monkeypatch.undo()
    await runner.stop()
    assert (await runner.gauges())["GlobalPartitionCount"] == 0
    await runner.start()
