"""Which of a broker's requests go to the control plane's listener, and which to that between brokers."""

import asyncio
from types import SimpleNamespace
from typing import Any

from logyard.broker.client.broker_links import BrokerLinks
from logyard.broker.client.peer_security import PLAIN
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.model import BrokerInfo, Endpoint
from tests.support.scripted_broker import Answer, Asked, ScriptedBroker

NAMES = "listener.security.protocol.map=DATA:PLAINTEXT,CONTROL:PLAINTEXT\ninter.broker.listener.name=DATA\n"
BASE = f"zookeeper.connect=z:2181\nbroker.id=1\nlog.dirs=/x\nlisteners=DATA://h:9,CONTROL://h:10\n{NAMES}"
STOP_REPLICA, CONTROLLED_SHUTDOWN, CREATE_TOPICS, ALTER_PARTITION, ALLOCATE = 5, 7, 19, 56, 67


def answered(asked: Asked) -> Answer:
    if asked.api_key == ALLOCATE:
        return {"producer_id_start": 0, "producer_id_len": 10}
    return {}


async def asked_on(config: str) -> tuple[list[int], list[int]]:
    """Have a broker send what it sends, and return what arrives on either listener of the other."""
    async with ScriptedBroker(answered) as data, ScriptedBroker(answered) as control:
        told = [Endpoint("DATA", "PLAINTEXT", "127.0.0.1", data.port)]
        told.append(Endpoint("CONTROL", "PLAINTEXT", "127.0.0.1", control.port))
        other = BrokerInfo(2, tuple(told))
        metadata: Any = SimpleNamespace(brokers={2: other}, controller_id=2)
        links = BrokerLinks(BrokerConfig.parse(BASE + config), metadata, PLAIN, PLAIN)
        links.peers.add_broker(other)
        heard = asyncio.Event()
        fields = {"controller_id": 1, "controller_epoch": 1, "broker_epoch": 1}
        links.peers.send(2, STOP_REPLICA, 0, fields, lambda answer: heard.set())
        await asyncio.wait_for(heard.wait(), 10)
        channel = links.controller_channel(lambda: 9)
        assert await channel.allocate_producer_ids() == range(10)
        assert await channel.controlled_shutdown(tries=1, backoff_ms=1)
        await links.to_controller.request(CREATE_TOPICS, 5, {"topics": [], "timeout_ms": 1, "validate_only": False})
        await links.control_to_controller.request(ALTER_PARTITION, 0, {"broker_id": 1, "topics": []})
        links.close()
        return [a.api_key for a in data.asked], [a.api_key for a in control.asked]


async def test_without_a_control_plane_all_goes_to_the_listener_between_brokers() -> None:
    every = [STOP_REPLICA, ALLOCATE, CONTROLLED_SHUTDOWN, CREATE_TOPICS, ALTER_PARTITION]
    assert await asked_on("") == (every, [])


async def test_the_control_plane_has_the_controllers_requests_and_two_to_it() -> None:
    data, control = await asked_on("control.plane.listener.name=control\n")
    assert data == [CONTROLLED_SHUTDOWN, CREATE_TOPICS]
    assert control == [STOP_REPLICA, ALLOCATE, ALTER_PARTITION]
