"""Settings of a broker that are stored and have no effect: a plug-in's of Kafka's, and what cannot be read."""

from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.config.broker import BrokerConfig, ConfigProblems
from logyard.broker.errors import ErrorCode
from logyard.broker.server.config_fields import DELETE, SET
from logyard.broker.server.handlers import describe_configs, incremental_alter_configs
from logyard.broker.server.rights import EverythingAllowed
from logyard.broker.server.services import Services
from logyard.broker.server.turns import Turns
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.registration import create_persistent_paths
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes import configs
from logyard.broker.znodes.ops import Create

STORED = {
    "reporter.url": "http://r",
    "message.max.bytes": "many",
    "num.partitions": "7",  # which cannot change while a broker runs
    "log.cleaner.threads": "1",
}
INCREMENTAL: Any = SimpleNamespace(api_version=1, api_key=44, session=None)


@pytest.fixture
async def services() -> Any:
    zk = MemoryZooKeeper(ZooKeeperTree(ManualClock()))
    await create_persistent_paths(zk)
    for name in ("1", configs.DEFAULT):
        await zk.multi([Create(configs.path(configs.BROKERS, name), configs.encode(STORED))])
    made = SimpleNamespace(
        turns=Turns(),
        zk=zk,
        tls=None,
        broker_id=1,
        config=BrokerConfig.parse("broker.id=1\nlog.dirs=/d\nzookeeper.connect=zk:2181"),
        configs=SimpleNamespace(entity_overrides=lambda name: STORED),
        alter_config_policy=None,
        http_address=None,
        rights=EverythingAllowed(),
    )
    made.readable_overrides = partial(Services.readable_overrides, cast(Any, made))
    return made


async def alter(services: Any, name: str, key: str, value: str | None, operation: int = SET) -> int:
    setting = SimpleNamespace(name=key, value=value, config_operation=operation)
    resource = SimpleNamespace(resource_type=4, resource_name=name, configs=[setting])
    message = SimpleNamespace(resources=[resource], validate_only=False)
    (told,) = (await incremental_alter_configs.handle(services, INCREMENTAL, message))["responses"]
    return int(told["error_code"])


@pytest.mark.parametrize("name", ["1", ""])
async def test_they_stay_and_keep_nobody_from_changing_others(services: Any, name: str) -> None:
    assert await alter(services, name, "log.cleaner.threads", "2") == 0
    (znode,) = await services.zk.read([configs.path(configs.BROKERS, name or configs.DEFAULT)])
    assert configs.decode(znode.data) == STORED | {"log.cleaner.threads": "2"}
    assert await alter(services, name, "num.partitions", "7") == int(ErrorCode.INVALID_REQUEST)
    assert await alter(services, name, "reporter.url", None, DELETE) == 0
    assert await alter(services, name, "reporter.url", "http://s") == int(ErrorCode.INVALID_CONFIG)
    assert await alter(services, name, "log.cleaner.thread", "2") == int(ErrorCode.INVALID_CONFIG)
    assert await alter(services, name, "message.max.bytes", "few") == int(ErrorCode.INVALID_REQUEST)
    assert await alter(services, name, "message.max.bytes", "5") == 0


@pytest.mark.parametrize("name", ["1", ""])
async def test_they_keep_nobody_from_seeing_others(services: Any, name: str) -> None:
    found = {entry.name: entry.value for entry in Services.describe_broker(services, cluster_wide=not name)}
    assert found["log.cleaner.threads"] == "1"
    assert found.get("message.max.bytes") == ("1048588" if name else None), "what holds is the default"


async def test_settings_that_contradict_each_other_are_that_broker_s_own_fault(services: Any) -> None:
    """What was asked about topics in the same request had no answer either."""

    def describe_broker(*, cluster_wide: bool) -> Any:
        raise ConfigProblems(["one setting is larger than another"])

    services.describe_broker = describe_broker
    resources = [SimpleNamespace(resource_type=4, resource_name=name, configuration_keys=None) for name in ("1", "2")]
    message = SimpleNamespace(resources=resources, include_synonyms=False, include_documentation=False)
    request: Any = SimpleNamespace(api_version=4, api_key=32, session=None)
    told = (await describe_configs.handle(services, request, message))["results"]
    refused, of_another = int(ErrorCode.UNKNOWN_SERVER_ERROR), int(ErrorCode.INVALID_REQUEST)
    assert [each["error_code"] for each in told] == [refused, of_another]
