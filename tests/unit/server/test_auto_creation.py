"""Topics that are created at their first use: what a broker makes of the controller's answers."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from logyard.broker.client.controller_link import ToController
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.errors import ErrorCode
from logyard.broker.server import auto_creation
from logyard.broker.server.auto_creation import AutoCreate
from tests.support.scripted_broker import Answer, Asked, ScriptedBroker

CONFIG = BrokerConfig.parse("zookeeper.connect=z:2181\nbroker.id=1\nlog.dirs=/x\n")


@pytest.mark.parametrize(
    ("answered", "told"),
    [
        (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE),
        (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.LEADER_NOT_AVAILABLE),
        (ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION),
        # What a later Kafka may answer: the request was not answered at all, and an internal topic never made.
        (119, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_client_gets_the_controllers_error(answered: int, told: ErrorCode) -> None:
    def create(asked: Asked) -> Answer:
        return {"topics": [{"name": topic.name, "error_code": answered} for topic in asked.body.topics]}

    async with ScriptedBroker(create) as controller:
        metadata: Any = SimpleNamespace(brokers={1: controller.info})
        to_controller = ToController(lambda: controller.info, "PLAINTEXT", "broker-1")
        found = await AutoCreate(CONFIG, metadata, to_controller).create(["t", "u"])
        assert found == {"t": told, "u": told}
        assert len(controller.asked) == 1
        to_controller.close()


async def test_nobody_waits_for_a_controller_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_creation, "WAIT_S", 0.05)
    answers = asyncio.Event()

    async def create(asked: Asked) -> Answer:
        await answers.wait()
        return {"topics": [{"name": topic.name, "error_code": 17} for topic in asked.body.topics]}

    async with ScriptedBroker(create) as controller:
        metadata: Any = SimpleNamespace(brokers={1: controller.info})
        to_controller = ToController(lambda: controller.info, "PLAINTEXT", "broker-1")
        topics = AutoCreate(CONFIG, metadata, to_controller)
        async with asyncio.timeout(5):
            first = await topics.create(["t", "u"])
            assert first == dict.fromkeys("tu", ErrorCode.LEADER_NOT_AVAILABLE)
            assert await topics.create(["u"]) == {"u": ErrorCode.LEADER_NOT_AVAILABLE}
        assert len(controller.asked) == 1, "it is asked for each topic once at a time"
        answers.set()
        async with asyncio.timeout(5):
            while await topics.create(["u"]) != {"u": ErrorCode.INVALID_TOPIC_EXCEPTION}:
                await asyncio.sleep(0.01)
        to_controller.close()
