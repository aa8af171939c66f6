"""A take-over of very many partitions lets others have their turns, as the new controller is a broker too."""

import asyncio
from types import SimpleNamespace
from typing import Any

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
from logyard.broker.znodes.ops import Create, ZkOp
from tests.support.controller_ports import FixedChance
from tests.support.longest_turn import TRIES, longest_turn_uncollected

PARTITIONS = 40_000
LEADER_AND_ISR, UPDATE_METADATA = 4, 6
TURN_S = 0.08


class Peers:
    """Brokers that answer at once; `sent` has what they are sent: broker, API, version, fields."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, int, Any]] = []

    def add_broker(self, info: BrokerInfo) -> None: ...

    def remove_broker(self, broker_id: int) -> None: ...

    def send(self, broker_id: int, api_key: int, version: int, fields: Any, callback: Any, *_: object) -> None:
        self.sent.append((broker_id, api_key, version, fields))
        asyncio.get_running_loop().call_soon(callback, SimpleNamespace(error_code=0, partition_errors=[], topics=[]))


def topic(name: str, partitions: int) -> list[ZkOp]:
    places = {number: Assignment((1, 2, 3)) for number in range(partitions)}
    ops: list[ZkOp] = [
        Create(topic_znode.topic_path(name), topic_znode.encode(TopicAssignment(places))),
        Create(topic_znode.partitions_path(name)),
    ]
    for number in places:
        state = partition_state.encode(PartitionState(1 + number % 3, 0, (1, 2, 3), 0))
        ops.append(Create(topic_znode.partition_path(name, number)))
        ops.append(Create(partition_state.path(TopicPartition(name, number)), state))
    return ops


async def cluster(topics: int) -> MemoryZooKeeper:
    zk = MemoryZooKeeper(ZooKeeperTree(ManualClock()))
    await create_persistent_paths(zk)
    for broker in (1, 2, 3):
        info = BrokerInfo(broker, (Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),))
        await zk.multi([Create(broker_znode.path(broker), broker_znode.encode(info, 0), ephemeral=True)])
    for number in range(topics):
        await zk.multi(topic(f"t{number}", PARTITIONS // topics))
    return zk


async def take_over(topics: int) -> tuple[Peers, float]:
    """Return what was sent, and the longest turn."""
    peers = Peers()
    settings = ControllerSettings(1, auto_leader_rebalance_enable=False)
    runner = ControllerRunner(await cluster(topics), peers, ManualClock(), settings, chance=FixedChance())
    async with longest_turn_uncollected() as longest:
        await runner.start()
        while runner.queue_size:
            await asyncio.sleep(0)
    assert runner.is_active
    await runner.stop()
    return peers, longest.seconds


@pytest.mark.parametrize("topics", [20, 400])
async def test_no_turn_of_a_take_over_is_long(topics: int) -> None:
    """Its longest took 0.2 s."""
    peers, least = await take_over(topics)
    for _ in range(TRIES - 1):
        if least >= TURN_S:
            least = min(least, (await take_over(topics))[1])
    assert least < TURN_S
    assert [(broker, key) for broker, key, *_ in peers.sent] == [
        *((broker, UPDATE_METADATA) for broker in (1, 2, 3)),
        *((broker, LEADER_AND_ISR) for broker in (1, 2, 3)),
        *((broker, UPDATE_METADATA) for broker in (1, 2, 3)),
    ]
    for broker, key, version, fields in peers.sent[3:]:
        frame = codec.encode_request(key, version, 1, "controller", fields)
        *_, body = parse_request_header(memoryview(frame)[4:])  # behind the size
        told = codec.decode_request(key, version, body)
        parts = [(each.topic_name, p.partition_index) for each in told.topic_states for p in each.partition_states]
        assert len(set(parts)) == len(parts) == PARTITIONS, broker
