"""DescribeConfigs of topics: what ZooKeeper has now, whatever this broker has heard of so far."""

import asyncio
from types import MethodType, SimpleNamespace
from typing import Any, cast

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.config.broker import BrokerConfig, topic_config
from logyard.broker.errors import ErrorCode
from logyard.broker.metadata.dynamic_configs import DynamicConfigs
from logyard.broker.protocol import codec
from logyard.broker.server.handlers import describe_configs
from logyard.broker.server.request import Request, Session
from logyard.broker.server.rights import EverythingAllowed
from logyard.broker.server.services import Services
from logyard.broker.server.turns import Turns
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes import configs
from logyard.broker.znodes.ops import Create, SessionExpired, SetData

KEY, VERSION = 32, 4


class CountingZooKeeper(MemoryZooKeeper):
    """How often it is read."""

    reads = 0

    async def read(self, paths: Any) -> Any:
        self.reads += 1
        return await super().read(paths)


class Broker:
    """What the handler uses of a broker, with the real settings and a ZooKeeper in memory."""

    def __init__(self, *topics: str) -> None:
        self.tree = ZooKeeperTree(ManualClock(5_000))
        self.zk = CountingZooKeeper(self.tree)
        config = BrokerConfig.parse("broker.id=1\nlog.dirs=/d\nzookeeper.connect=zk:2181")
        self.configs = DynamicConfigs(1, lambda overrides: topic_config(config.topic_defaults(), overrides))
        self._parts = SimpleNamespace(
            config=config,
            zk=self.zk,
            configs=self.configs,
            metadata=set(topics),
            broker_id=1,
            rights=EverythingAllowed(),
            turns=Turns(),
            describe_broker=lambda *, cluster_wide: config.describe(),
        )
        for method in (Services.read_topic_overrides, Services.read_together):
            setattr(self._parts, method.__name__, MethodType(method, self._parts))

    async def prepared(self) -> "Broker":
        for path in ("/config", configs.type_path(configs.TOPICS)):
            await self.zk.multi([Create(path)])
        return self

    async def write(self, topic: str, **overrides: str) -> None:
        """As another broker does; nobody tells this one."""
        path, data = configs.topic_path(topic), configs.encode({k.replace("_", "."): v for k, v in overrides.items()})
        if self.tree.read(path) is None:
            await self.zk.multi([Create(path, data)])
        else:
            await self.zk.multi([SetData(path, data, -1)])

    async def describe(self, *topics: str, key: str = "retention.ms", kind: int = 2) -> list[tuple[int, str | None]]:
        # What is asked for twice is told once: each resource differs.
        resources = [
            {"resource_type": kind, "resource_name": t, "configuration_keys": [key, str(number)]}
            for number, t in enumerate(topics)
        ]
        frame = codec.encode_request(KEY, VERSION, 1, "", {"resources": resources})
        body = memoryview(bytearray(frame))[15:]
        request = Request(KEY, VERSION, 1, "", body, Session(1, "PLAINTEXT", "127.0.0.1"))
        message = codec.decode_request(KEY, VERSION, body)
        answer = await describe_configs.handle(cast(Services, self._parts), request, message)
        codec.encode_response(KEY, VERSION, 1, answer)
        return [(r["error_code"], r["configs"][0]["value"] if r["configs"] else None) for r in answer["results"]]


async def test_what_was_written_is_read_though_this_broker_has_not_heard_of_it() -> None:
    broker = await Broker("t").prepared()
    assert await broker.describe("t") == [(0, "604800000")]
    await broker.write("t", retention_ms="7000")
    assert await broker.describe("t") == [(0, "7000")]
    assert broker.configs.topic_overrides("t") == {}  # the watch tells, and who listens for changes hears it
    await broker.write("t")
    assert await broker.describe("t") == [(0, "604800000")]


async def test_a_thousand_topics_are_read_at_once() -> None:
    names = [f"t{n}" for n in range(1000)]
    broker = await Broker(*names).prepared()
    for n in range(0, 1000, 100):
        await broker.write(f"t{n}", retention_ms=str(n))
    broker.zk.reads = 0
    found = await broker.describe(*names)
    assert broker.zk.reads == 1
    assert [value for _, value in found[::100]] == [str(n) for n in range(0, 1000, 100)]


@pytest.mark.parametrize(("kind", "name", "turns"), [(2, "t", 18), (4, "", 299), (4, "1", 299)])
async def test_who_asks_for_the_same_again_and_again_lets_others_in(kind: int, name: str, turns: int) -> None:
    """A broker's settings take 2 ms: three thousand times in 15 kB would hold up everybody for six seconds."""
    broker = await Broker("t").prepared()
    passed = 0

    async def others() -> None:
        nonlocal passed
        while True:
            await asyncio.sleep(0)
            passed += 1

    serving = asyncio.ensure_future(others())
    await asyncio.sleep(0)
    found = await broker.describe(*[name] * 300, kind=kind)
    serving.cancel()
    assert len(found) == 300
    assert {error for error, _ in found} == {0}
    assert passed >= turns


async def test_a_topic_that_does_not_exist_is_not_looked_for() -> None:
    broker = await Broker("t").prepared()
    broker.zk.reads = 0
    assert await broker.describe("gone") == [(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None)]
    assert broker.zk.reads == 0


async def test_without_a_session_what_was_heard_last_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await Broker("t").prepared()
    broker.configs.set_topic("t", {"retention.ms": "7000"})

    async def expired(_paths: Any) -> Any:
        raise SessionExpired

    monkeypatch.setattr(broker.zk, "read", expired)
    assert await broker.describe("t") == [(0, "7000")]


async def test_settings_that_do_not_parse_are_left_as_they_were() -> None:
    broker = await Broker("t").prepared()
    broker.configs.set_topic("t", {"retention.ms": "7000"})
    await broker.zk.multi([Create(configs.topic_path("t"), b"{")])
    assert await broker.describe("t") == [(0, "7000")]
