"""alter.config.policy.class.name: what the policy is shown, and that a refusal leaves the settings as they are."""

from types import SimpleNamespace
from typing import Any

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.controller.policies import ConfigRequest, PolicyViolation
from logyard.broker.errors import ErrorCode
from logyard.broker.server.config_fields import APPEND, DELETE, SET, SUBTRACT
from logyard.broker.server.handlers import alter_configs, incremental_alter_configs
from logyard.broker.server.rights import EverythingAllowed
from logyard.broker.server.turns import Turns
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.registration import create_persistent_paths
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes import configs
from logyard.broker.znodes.ops import Create

INCREMENTAL: Any = SimpleNamespace(api_version=1, api_key=44, session=None)
WHOLE: Any = SimpleNamespace(api_version=2, api_key=33, session=None)


def resource(*settings: tuple[str, str | None, int]) -> Any:
    named = [SimpleNamespace(name=n, value=v, config_operation=o) for n, v, o in settings]
    return SimpleNamespace(resource_type=2, resource_name="t", configs=named)


@pytest.fixture
async def services() -> Any:
    """As much of a broker as these handlers touch; its policy refuses a retention of one millisecond."""
    zk = MemoryZooKeeper(ZooKeeperTree(ManualClock()))
    await create_persistent_paths(zk)
    await zk.multi([Create(configs.topic_path("t"), configs.encode({"segment.bytes": "1048576"}))])
    seen: list[ConfigRequest] = []

    def policy(request: ConfigRequest) -> None:
        seen.append(request)
        if request.configs.get("retention.ms") == "1":
            raise PolicyViolation("nobody could read it in time")

    overrides = SimpleNamespace(topic_overrides=lambda name: {"segment.bytes": "1048576"})
    return SimpleNamespace(
        turns=Turns(),
        zk=zk,
        metadata={"t": None},
        configs=overrides,
        alter_config_policy=policy,
        seen=seen,
        rights=EverythingAllowed(),
    )


async def settings(services: Any) -> dict[str, str]:
    (znode,) = await services.zk.read([configs.topic_path("t")])
    return configs.decode(znode.data)


@pytest.mark.parametrize("validate_only", [False, True])
async def test_a_refusal_reaches_the_client_and_changes_nothing(services: Any, validate_only: bool) -> None:
    asked = resource(("retention.ms", "1", SET))
    message = SimpleNamespace(resources=[asked], validate_only=validate_only)
    answer = await incremental_alter_configs.handle(services, INCREMENTAL, message)
    (response,) = answer["responses"]
    assert response["error_code"] == ErrorCode.POLICY_VIOLATION
    assert response["error_message"] == "nobody could read it in time"
    assert await settings(services) == {"segment.bytes": "1048576"}


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(("handler", "request_"), [(alter_configs, WHOLE), (incremental_alter_configs, INCREMENTAL)])
async def test_what_zookeeper_would_not_take_is_refused(
    services: Any, handler: Any, request_: Any, validate_only: bool
) -> None:
    """A client that only asks was told that the change is possible."""
    throttled = ",".join(f"{number}:1" for number in range(150_000))
    asked = resource(("leader.replication.throttled.replicas", throttled, SET))
    answer = await handler.handle(services, request_, SimpleNamespace(resources=[asked], validate_only=validate_only))
    (response,) = answer["responses"]
    assert response["error_code"] == ErrorCode.INVALID_CONFIG
    assert "ZooKeeper holds 900000 at most" in response["error_message"]
    assert await settings(services) == {"segment.bytes": "1048576"}


@pytest.mark.parametrize(
    ("handler", "request_", "settings_"),
    [
        (alter_configs, WHOLE, [("retention.ms", "5", SET), ("retention.ms", "6", SET)]),
        (alter_configs, WHOLE, [("retention.ms", None, SET)]),
        (incremental_alter_configs, INCREMENTAL, [("retention.ms", "5", SET), ("retention.ms", None, DELETE)]),
        (incremental_alter_configs, INCREMENTAL, [("retention.ms", None, SET)]),
    ],
)
async def test_a_setting_has_one_value(services: Any, handler: Any, request_: Any, settings_: list[Any]) -> None:
    """Of a setting that was named twice the last value was taken, without a word."""
    message = SimpleNamespace(resources=[resource(*settings_)], validate_only=False)
    (response,) = (await handler.handle(services, request_, message))["responses"]
    assert response["error_code"] == ErrorCode.INVALID_REQUEST
    assert await settings(services) == {"segment.bytes": "1048576"}


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
async def test_only_lists_are_appended_to(services: Any, operation: int) -> None:
    """What had a value of its own was taken for a list: the same once more changed nothing, and was a success."""
    services.config = BrokerConfig.parse("broker.id=1\nlog.dirs=/d\nzookeeper.connect=zk:2181")
    message = SimpleNamespace(resources=[resource(("segment.bytes", "1048576", operation))], validate_only=False)
    (response,) = (await incremental_alter_configs.handle(services, INCREMENTAL, message))["responses"]
    assert response["error_code"] == ErrorCode.INVALID_CONFIG
    assert await settings(services) == {"segment.bytes": "1048576"}


async def test_a_list_of_which_all_was_subtracted_is_empty(services: Any) -> None:
    """What was subtracted came back with whatever was appended next: an empty list was taken for none."""
    services.config = BrokerConfig.parse("broker.id=1\nlog.dirs=/d\nzookeeper.connect=zk:2181")
    for value, operation in (("delete", SUBTRACT), ("compact", APPEND)):
        message = SimpleNamespace(resources=[resource(("cleanup.policy", value, operation))], validate_only=False)
        (response,) = (await incremental_alter_configs.handle(services, INCREMENTAL, message))["responses"]
        assert response["error_code"] == 0
    assert (await settings(services))["cleanup.policy"] == "compact"


async def test_who_only_asks_changes_nothing(services: Any) -> None:
    asked = resource(("retention.ms", "5000", SET))
    answer = await incremental_alter_configs.handle(
        services, INCREMENTAL, SimpleNamespace(resources=[asked], validate_only=True)
    )
    assert answer["responses"][0]["error_code"] == 0
    assert await settings(services) == {"segment.bytes": "1048576"}


async def test_the_policy_is_shown_what_the_request_names(services: Any) -> None:
    asked = resource(("retention.ms", "5000", SET), ("segment.bytes", None, DELETE))
    message = SimpleNamespace(resources=[asked], validate_only=False)
    answer = await incremental_alter_configs.handle(services, INCREMENTAL, message)
    assert answer["responses"][0]["error_code"] == 0
    assert services.seen == [ConfigRequest("topic", "t", {"retention.ms": "5000", "segment.bytes": None})]
    assert await settings(services) == {"retention.ms": "5000"}


async def test_an_invalid_setting_never_reaches_the_policy(services: Any) -> None:
    message = SimpleNamespace(resources=[resource(("colour", "red", SET))], validate_only=False)
    answer = await alter_configs.handle(services, WHOLE, message)
    assert answer["responses"][0]["error_code"] == ErrorCode.INVALID_CONFIG
    assert services.seen == []
