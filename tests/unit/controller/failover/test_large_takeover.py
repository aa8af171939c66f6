"""A take-over of very many partitions lets others have their turns, as the new controller is a broker too."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.controller.runner import ControllerRunner
from logyard.broker.controller.settings import ControllerSettings
from logyard.broker.model import Assignment, BrokerInfo, Endpoint, PartitionState, TopicAssignment, TopicPartition
from logyard.broker.protocol import codec
from logyard.broker.protocol.header import parse_request_header
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.registration import create_persistent_paths
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes import brokers as broker_znode
from logyard.broker.znodes import partition_state
from logyard.broker.znodes import topics as topic_znode
from logyard.broker.znodes.ops import Create, Delete, ZkOp
from tests.support.controller_ports import FixedChance
from tests.support.longest_turn import TRIES, longest_turn_of_the_new

PARTITIONS = 20_000
LEADER_AND_ISR, UPDATE_METADATA = 4, 6
# A turn has some milliseconds' work, 30 to 40 on a machine whose cores all are busy; in one turn it was 300 to 1,100.
TURN_S = 0.08
NONE, STORAGE_ERROR = 0, 56


class Peers:
    """Brokers that answer at once; `sent` has what they are sent: broker, API, version, fields."""

    def __init__(self, topics: int) -> None:
        self.sent: list[tuple[int, int, int, Any]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._answers = {broker: answer_of(broker, topics) for broker in (1, 2, 3)}

    def add_broker(self, info: BrokerInfo) -> None: ...

    def remove_broker(self, broker_id: int) -> None: ...

    def send(self, broker_id: int, api_key: int, version: int, fields: Any, callback: Any, *_: object) -> None:
        self.sent.append((broker_id, api_key, version, fields))
        answering = self._encode_and_answer(broker_id, api_key, version, fields, callback)
        self._tasks.append(asyncio.ensure_future(answering))

    async def _encode_and_answer(
        self, broker_id: int, api_key: int, version: int, fields: Any, callback: Callable[[Any], None]
    ) -> None:
        codec.encode_request(api_key, version, 1, "controller", fields)
        answer = SimpleNamespace(error_code=0)
        if api_key == LEADER_AND_ISR:
            answer = self._answers.pop(broker_id, answer)
        await asyncio.sleep(0)
        callback(answer)


def answer_of(broker: int, topics: int) -> SimpleNamespace:
    """A broker's answer about its replicas: one is on a directory of broker 3 that has failed."""
    told = []
    for number in range(topics):
        errors = [SimpleNamespace(partition_index=n, error_code=NONE) for n in range(PARTITIONS // topics)]
        told.append(SimpleNamespace(topic_id=UUID(int=number + 1), partition_errors=errors))
    if broker == 3:
        told[0].partition_errors[0].error_code = STORAGE_ERROR
    return SimpleNamespace(error_code=0, topics=told)


def topic(number: int, partitions: int) -> list[ZkOp]:
    name, topic_id = f"t{number}", UUID(int=number + 1)
    places = {number: Assignment((1, 2, 3)) for number in range(partitions)}
    ops: list[ZkOp] = [
        Create(topic_znode.topic_path(name), topic_znode.encode(TopicAssignment(places, topic_id))),
        Create(topic_znode.partitions_path(name)),
    ]
    for number in places:
        state = partition_state.encode(PartitionState(1 + number % 3, 0, (1, 2, 3), 0))
        ops.append(Create(topic_znode.partition_path(name, number)))
        ops.append(Create(partition_state.path(TopicPartition(name, number)), state))
    return ops


async def register(zk: MemoryZooKeeper, *brokers: int) -> None:
    for broker in brokers:
        info = BrokerInfo(broker, (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),))
        await zk.multi([Create(broker_znode.path(broker), broker_znode.encode(info, 0), ephemeral=True)])


async def cluster(topics: int) -> MemoryZooKeeper:
    zk = MemoryZooKeeper(ZooKeeperTree(ManualClock()))
    await create_persistent_paths(zk)
    await register(zk, 1, 2, 3)
    for number in range(topics):
        await zk.multi(topic(number, PARTITIONS // topics))
    return zk


@dataclass
class TakenOver:
    """`longest` turn, and what brokers were sent."""

    runner: ControllerRunner
    peers: Peers
    longest_s: float


async def take_over(zk: MemoryZooKeeper, topics: int) -> TakenOver:
    peers = Peers(topics)
    settings = ControllerSettings(1, auto_leader_rebalance_enable=False)
    runner = ControllerRunner(zk, peers, ManualClock(), settings, chance=FixedChance())
    async with longest_turn_of_the_new() as longest, asyncio.timeout(60):
        await runner.start()
        while runner.queue_size or len(runner.context.failed_dirs) == 0:
            await asyncio.sleep(0)
    assert runner.is_active
    return TakenOver(runner, peers, longest.seconds)


async def least_of(topics: int, *restarted: int) -> TakenOver:
    """Return the last of up to TRIES take-overs; it has the least of their longest turns."""
    least = float("inf")
    for number in range(TRIES):
        zk = await cluster(topics)
        for broker in restarted:
            await zk.multi([Delete(broker_znode.path(broker))])
        await register(zk, *restarted)
        found = await take_over(zk, topics)
        least = found.longest_s = min(least, found.longest_s)
        if least < TURN_S or number == TRIES - 1:
            break
        await found.runner.stop()
    return found


@pytest.mark.parametrize("topics", [20, PARTITIONS])
async def test_no_turn_of_a_take_over_is_long(topics: int) -> None:
    """With a topic for each of 100,000 partitions the longest took 0.3 s, and brokers' answers 0.4 s."""
    found = await least_of(topics)
    assert found.longest_s < TURN_S
    assert [(broker, key) for broker, key, *_ in found.peers.sent[:9]] == [
        *((broker, UPDATE_METADATA) for broker in (1, 2, 3)),
        *((broker, LEADER_AND_ISR) for broker in (1, 2, 3)),
        *((broker, UPDATE_METADATA) for broker in (1, 2, 3)),
    ]
    for broker, key, version, fields in found.peers.sent[3:9]:
        frame = codec.encode_request(key, version, 1, "controller", fields)
        *_, body = parse_request_header(memoryview(frame)[4:])  # behind the size
        told = codec.decode_request(key, version, body)
        assert sorted(each.topic_id.int for each in told.topic_states) == list(range(1, topics + 1))
        parts = [(each.topic_name, p.partition_index) for each in told.topic_states for p in each.partition_states]
        assert len(set(parts)) == len(parts) == PARTITIONS, broker
    context = found.runner.context
    assert context.failed_dirs == {3: {TopicPartition("t0", 0)}}
    assert [p.state.isr for p in context.partitions() if p.state and p.state.isr != (1, 2, 3)] == [(1, 2)]
    await found.runner.stop()


async def test_no_turn_is_long_where_brokers_have_restarted_meanwhile() -> None:
    """The states that pass them over were decided on and written in one turn, 1.1 s of 100,000."""
    found = await least_of(400, 2, 3)
    assert found.longest_s < TURN_S
    states = [p.state for p in found.runner.context.partitions()]
    assert {(s.leader, s.isr, s.leader_epoch) for s in states if s and s.leader_epoch == 1} == {(1, (1,), 1)}
    assert len(states) == PARTITIONS
    await found.runner.stop()
