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

PATIENT_S = 30.0  # on a busy machine an answer takes longer than clients wait
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
async def test_a_client_gets_the_controllers_error(
    monkeypatch: pytest.MonkeyPatch, answered: int, told: ErrorCode
) -> None:
    monkeypatch.setattr(auto_creation, "WAIT_S", PATIENT_S)

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
            while not controller.asked:
                await asyncio.sleep(0.01)
        assert len(controller.asked) == 1, "it is asked for each topic once at a time"
        answers.set()
        monkeypatch.setattr(auto_creation, "WAIT_S", PATIENT_S)
        async with asyncio.timeout(PATIENT_S):
            while await topics.create(["u"]) != {"u": ErrorCode.INVALID_TOPIC_EXCEPTION}:
                await asyncio.sleep(0.01)
        to_controller.close()


async def test_a_topic_that_is_named_twice_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By two ids. What came behind it in its request counted as being created for good, and never was."""
    monkeypatch.setattr(auto_creation, "WAIT_S", PATIENT_S)

    def create(asked: Asked) -> Answer:
        return {"topics": [{"name": topic.name, "error_code": 17} for topic in asked.body.topics]}

    async with ScriptedBroker(create) as controller:
        metadata: Any = SimpleNamespace(brokers={1: controller.info})
        to_controller = ToController(lambda: controller.info, "PLAINTEXT", "broker-1")
        topics = AutoCreate(CONFIG, metadata, to_controller)
        refused = dict.fromkeys("tu", ErrorCode.INVALID_TOPIC_EXCEPTION)
        assert await topics.create(["t", "t", "u"]) == refused
        assert await topics.create(["t", "u"]) == refused
        assert [len(asked.body.topics) for asked in controller.asked] == [2, 2]
        to_controller.close()
