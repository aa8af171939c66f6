"""A client that asks the wrong broker hears who leads and where that is, in the same answer (KIP-951)."""

import uuid
from typing import Any

import pytest

from logyard.broker.metadata.updates import PartitionUpdate
from logyard.broker.server.handlers import produce
from tests.support import batches
from tests.support.replica_world import T0
from tests.unit.server.test_throttled_data import Broker

TOPIC_ID = uuid.UUID(int=9)


@pytest.fixture
def follower() -> Broker:
    """Broker 1, where broker 2 leads."""
    broker = Broker()
    update = PartitionUpdate(T0, 2, 5, (1, 2), (1, 2))
    broker.world.hear((1, 2, 3), [update], topic_ids={"flights": TOPIC_ID})
    broker.world.tell(broker.world.order(leader=2, leader_epoch=5, partition_epoch=1, replicas=(1, 2)))
    return broker


def ask_to_produce(broker: Broker, version: int) -> Any:
    records = batches.batch([batches.Rec(0, None, b"v")]).encode()
    topics = [{"name": "flights", "partition_data": [{"index": 0, "records": records}]}]
    fields = {"transactional_id": None, "acks": 1, "timeout_ms": 1000, "topic_data": topics}
    return broker.ask(produce, version, fields)


@pytest.mark.parametrize("version", [9, 10, 11])
def test_produce_tells_the_leader(follower: Broker, version: int) -> None:
    answer = ask_to_produce(follower, version)
    (partition,) = answer.responses[0].partition_responses
    assert partition.error_code == 6
    if version < 10:
        assert answer.node_endpoints == []
        return
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (2, 5)
    told = [(n.node_id, n.host, n.port, n.rack) for n in answer.node_endpoints]
    assert told == [(2, "host2", 9092, "rack2")]


@pytest.mark.parametrize("version", [15, 16, 17])
def test_fetch_tells_the_leader(follower: Broker, version: int) -> None:
    follower.believes = 4
    answer = follower.fetch(0, -1, 0, version=version, topic_id=TOPIC_ID)
    (partition,) = answer.responses[0].partitions
    assert partition.error_code == 74, "a follower may be read from, but not under an epoch that is past"
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (2, 5)
    assert [n.node_id for n in answer.node_endpoints] == ([2] if version >= 16 else [])


def test_a_leader_that_is_dead_is_named_without_an_address(follower: Broker) -> None:
    follower.world.hear((1, 3))
    answer = ask_to_produce(follower, 11)
    (partition,) = answer.responses[0].partition_responses
    assert partition.current_leader.leader_id == 2
    assert answer.node_endpoints == []
