"""Settings that brokers do not tell: a missing right is no missing topic, and no default; on real sockets."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from logyard.admin.cluster.client import KafkaClusterClient
from logyard.admin.settings import ClusterSettings
from logyard.broker.errors import ApiError, ErrorCode
from tests.support.scripted_broker import Answer, Asked, HangUp, ScriptedBroker

API_VERSIONS, METADATA, DESCRIBE_CONFIGS = 18, 3, 32
OFFERED = {API_VERSIONS: 3, METADATA: 9, DESCRIBE_CONFIGS: 4}
TOPIC = 2


def setting(name: str, value: str, source: int) -> dict[str, Any]:
    told = {"name": name, "value": value, "read_only": False, "config_source": source, "is_sensitive": False}
    return {**told, "synonyms": [{"name": name, "value": "7", "source": 5}], "config_type": 1, "documentation": None}


class Broker:
    """Broker 1, which refuses to tell the settings of what is in `refused`, by the code there."""

    def __init__(self, refused: dict[str, ErrorCode]) -> None:
        self.refused = refused
        self.server = ScriptedBroker(self._answer)

    def _answer(self, asked: Asked) -> Answer:
        match asked.api_key:
            case 18:
                keys = [{"api_key": key, "min_version": 0, "max_version": most} for key, most in OFFERED.items()]
                return {"error_code": 0, "api_keys": keys}
            case 3:
                here = {"node_id": 1, "host": "127.0.0.1", "port": self.server.port, "rack": None}
                return {"brokers": [here], "cluster_id": "c", "controller_id": 1, "topics": []}
            case 32:
                return {"results": [self._described(one) for one in asked.body.resources]}
        return HangUp()

    def _described(self, resource: Any) -> dict[str, Any]:
        code = self.refused.get(resource.resource_name, ErrorCode.NONE)
        found = [] if code else [setting("retention.ms", "5", 1 if resource.resource_type == TOPIC else 2)]
        head = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        return {**head, "error_code": int(code), "error_message": None, "configs": found}

    async def asked(self, ask: Callable[[KafkaClusterClient], Any]) -> Any:
        def work() -> Any:
            settings = ClusterSettings.read(f"127.0.0.1:{self.server.port}", {"total_timeout_s": 5})
            client = KafkaClusterClient(settings)
            try:
                return ask(client)
            finally:
                client.close()

        async with self.server:
            return await asyncio.to_thread(work)


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (lambda client: client.topic_configs("t"), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (lambda client: client.broker_configs(1), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
async def test_a_missing_right_is_said(ask: Callable[[KafkaClusterClient], Any], code: ErrorCode) -> None:
    """A broker that was taken for one that is away would have been left without its throttle."""
    with pytest.raises(ApiError) as raised:
        await Broker({"t": code, "1": code}).asked(ask)
    assert raised.value.code is code


async def test_of_many_topics_those_that_are_gone_are_left_out_and_others_settings_are_not_told() -> None:
    refused = {"gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "theirs": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    found = await Broker(refused).asked(lambda client: client.topics_configs(["t", "gone", "theirs"]))
    assert sorted(found) == ["t", "theirs"]
    assert found["theirs"] == {}
    assert (found["t"]["retention.ms"].value, found["t"]["retention.ms"].is_override) == ("5", True)


async def test_what_is_told_has_its_source_and_default() -> None:
    broker = Broker({})
    (told,) = (await broker.asked(lambda client: client.broker_configs(1))).values()
    assert (told.value, told.source, told.default) == ("5", "DYNAMIC_BROKER_CONFIG", "7")
