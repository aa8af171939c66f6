"""LeaderAndIsr's handler: what is checked before it waits for anything, and topics' settings that it reads."""

from collections.abc import Sequence
from types import MethodType, SimpleNamespace
from typing import Any

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.config.broker import BrokerConfig, topic_config
from logyard.broker.errors import ErrorCode
from logyard.broker.metadata.dynamic_configs import DynamicConfigs
from logyard.broker.model import TopicPartition
from logyard.broker.protocol import codec
from logyard.broker.protocol.header import parse_request_header
from logyard.broker.replication.events import LeaderAndIsr
from logyard.broker.server.controller_orders import ControllerOrders
from logyard.broker.server.handlers import leader_and_isr
from logyard.broker.server.request import Request, Session
from logyard.broker.server.services import Services
from logyard.broker.zk.registration import create_persistent_paths
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes import configs
from logyard.broker.znodes.ops import Create
from tests.support.guarded_zookeeper import GuardedZooKeeper
from tests.support.replica_world import World

VERSION = 4


def message(controller_epoch: int, broker_epoch: int, topics: Sequence[str] = ("flights",)) -> Any:
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
        "topic_states": [{"topic_name": topic, "partition_states": [state]} for topic in topics],
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


async def test_settings_that_may_not_be_read_cost_no_other_topic() -> None:
    world, zk = World(), GuardedZooKeeper(ZooKeeperTree(ManualClock()), configs.topic_path("secret"))
    await create_persistent_paths(zk)
    topics = ("one", "secret", "two")
    settings = configs.encode({"retention.ms": "7"})
    await zk.multi([Create(configs.topic_path(topic), settings) for topic in topics])
    config = BrokerConfig.parse("broker.id=1\nlog.dirs=/d\nzookeeper.connect=zk:2181")
    dynamic = DynamicConfigs(1, lambda overrides: topic_config(config.topic_defaults(), overrides))
    services: Any = SimpleNamespace(
        replicas=world.replicas,
        store=SimpleNamespace(logs=world.logs),
        orders=ControllerOrders(),
        zk=zk,
        configs=dynamic,
    )
    for method in (Services.refresh_topic_overrides, Services.read_together):
        setattr(services, method.__name__, MethodType(method, services))
    request = Request(4, VERSION, 1, "c", memoryview(b""), Session(1, "PLAINTEXT", "h"))
    answer = await leader_and_isr.handle(services, request, message(1, -1, topics))
    assert answer["error_code"] == ErrorCode.NONE
    assert [found["error_code"] for found in answer["partition_errors"]] == [0, 0, 0]
    assert all(world.replicas.partition(TopicPartition(topic, 0)) is not None for topic in topics)
    assert [dynamic.topic_overrides(topic) for topic in topics] == [{"retention.ms": "7"}, {}, {"retention.ms": "7"}]
