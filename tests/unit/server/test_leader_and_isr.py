"""LeaderAndIsr's handler: what is checked before it waits for anything."""

from types import SimpleNamespace
from typing import Any

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.protocol import codec
from logyard.broker.protocol.header import parse_request_header
from logyard.broker.replication.events import LeaderAndIsr
from logyard.broker.server.controller_orders import ControllerOrders
from logyard.broker.server.handlers import leader_and_isr
from logyard.broker.server.request import Request, Session
from tests.support.replica_world import World

VERSION = 4


def message(controller_epoch: int, broker_epoch: int) -> Any:
    state = {
        "partition_index": 0,
        "controller_epoch": controller_epoch,
        "leader": 1,
        "leader_epoch": 0,
        "isr": [1],
        "partition_epoch": 0,
        "replicas": [1],
        "adding_replicas": [],
        "removing_replicas": [],
        "is_new": True,
    }
    fields = {
        "controller_id": 1,
        "controller_epoch": controller_epoch,
        "broker_epoch": broker_epoch,
        "topic_states": [{"topic_name": "flights", "partition_states": [state]}],
        "live_leaders": [],
    }
    frame = memoryview(codec.encode_request(4, VERSION, 1, "c", fields))[4:]  # behind the size
    *_, body = parse_request_header(frame)
    return codec.decode_request(4, VERSION, body)


@pytest.mark.parametrize(
    ("controller_epoch", "broker_epoch", "code"),
    [(4, 7, ErrorCode.STALE_CONTROLLER_EPOCH), (5, 6, ErrorCode.STALE_BROKER_EPOCH)],
)
async def test_a_request_of_the_past_is_refused_before_zookeeper_is_asked(
    controller_epoch: int, broker_epoch: int, code: ErrorCode
) -> None:
    world = World()
    world.replicas.requests.admit(LeaderAndIsr(1, 5, 7, ()))

    async def refresh(topics: Any) -> None:
        raise AssertionError("ZooKeeper was asked")

    store = SimpleNamespace(get=lambda tp: None)
    services: Any = SimpleNamespace(
        replicas=world.replicas, store=store, refresh_topic_overrides=refresh, orders=ControllerOrders()
    )
    request = Request(4, VERSION, 1, "c", memoryview(b""), Session(1, "PLAINTEXT", "h"))
    answer = await leader_and_isr.handle(services, request, message(controller_epoch, broker_epoch))
    assert answer["error_code"] == code
    assert world.replicas.partition(TopicPartition("flights", 0)) is None
