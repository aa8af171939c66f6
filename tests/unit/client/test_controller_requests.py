"""Leave to shut down, asked of the controller in the version that Kafka 3.9 would send."""

import pytest

from logyard.broker.client.controller_link import ToController
from logyard.broker.client.controller_requests import ControllerChannel, controlled_shutdown_version
from logyard.broker.config.inter_broker_protocol import InterBrokerProtocol
from logyard.broker.model import BrokerInfo
from tests.support.scripted_broker import Answer, HangUp, ScriptedBroker


def channel_to(controller: BrokerInfo | None, level: str = "3.9") -> ControllerChannel:
    to_controller = ToController(lambda: controller, "PLAINTEXT", "me")
    return ControllerChannel(to_controller, to_controller, 1, lambda: 9, InterBrokerProtocol.from_text(level))


async def test_controlled_shutdown() -> None:
    remaining = [{"topic_name": "t", "partition_index": 0}]
    answers: list[Answer] = [
        {"error_code": 11},
        HangUp(),
        {"error_code": 0, "remaining_partitions": remaining},
        {"error_code": 0, "remaining_partitions": []},
    ]
    script = iter(answers)
    async with ScriptedBroker(lambda asked: next(script)) as broker:
        assert await channel_to(broker.info).controlled_shutdown(tries=4, backoff_ms=1)
        assert [(a.api_key, a.version, a.body.broker_id, a.body.broker_epoch) for a in broker.asked] == [
            (7, 3, 1, 9)
        ] * 4


async def test_controlled_shutdown_gives_up_after_the_last_try() -> None:
    async with ScriptedBroker(lambda asked: {"error_code": 77}) as broker:
        assert not await channel_to(broker.info).controlled_shutdown(tries=2, backoff_ms=1)
        assert len(broker.asked) == 2
    assert not await channel_to(None).controlled_shutdown(tries=1, backoff_ms=1)


@pytest.mark.parametrize(
    ("level", "version"),
    [("0.8.2", 0), ("0.9.0", 1), ("2.1-IV2", 1), ("2.2-IV0", 2), ("2.4-IV0", 2), ("2.4-IV1", 3), ("3.9", 3)],
)
async def test_the_level_decides_the_version_of_controlled_shutdown(level: str, version: int) -> None:
    assert controlled_shutdown_version(InterBrokerProtocol.from_text(level)) == version
    async with ScriptedBroker(lambda asked: {"error_code": 0, "remaining_partitions": []}) as broker:
        assert await channel_to(broker.info, level).controlled_shutdown(tries=1, backoff_ms=1)
        assert [(asked.version, asked.body.broker_id) for asked in broker.asked] == [(version, 1)]
