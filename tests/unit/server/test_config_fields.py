"""Overrides and their notification are written in one step."""

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.server.config_fields import change_overrides
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes import config_changes, configs
from logyard.broker.znodes.content import CONTENT_BYTES_MAX
from logyard.broker.znodes.ops import Create, SetData

CHANGES = config_changes.PATH


@pytest.fixture
def zk() -> MemoryZooKeeper:
    return MemoryZooKeeper(ZooKeeperTree(ManualClock(5_000)))


async def change(zk: MemoryZooKeeper, kind: str, name: str, **values: str) -> None:
    await change_overrides(zk, kind, name, lambda before: {**before, **values} if values else {}, lambda after: None)


def notified(zk: MemoryZooKeeper) -> list[config_changes.ConfigChange]:
    found = (zk.tree.read(f"{CHANGES}/{one}") for one in zk.tree.children(CHANGES) or ())
    return [config_changes.decode(znode.data) for znode in found if znode is not None]


async def test_nobody_can_die_between_the_settings_and_their_notification(zk: MemoryZooKeeper) -> None:
    for number, size in enumerate(("1", "2")):  # the first creates the znode, and those above it
        await change(zk, configs.TOPICS, "t", size=size)
        settings = zk.tree.read(configs.topic_path("t"))
        told = zk.tree.read(f"{CHANGES}/config_change_{number:010}")
        assert settings is not None
        assert told is not None
        assert settings.mzxid == told.czxid
    assert notified(zk) == [("topics", "t")] * 2


async def test_a_user_without_settings_is_removed_and_told_of(zk: MemoryZooKeeper) -> None:
    await change(zk, configs.USERS, "u/clients/c", rate="1")
    await change(zk, configs.USERS, "u", rate="1")
    await change(zk, configs.USERS, "u")  # a client is below
    await change(zk, configs.USERS, "u/clients/c")
    assert zk.tree.children("/config/users") == []
    assert notified(zk) == [("users", "u/clients/c"), ("users", "u"), ("users", "u"), ("users", "u/clients/c")]
    await change(zk, configs.USERS, "nobody")
    assert notified(zk)[4:] == [("users", "nobody")]


async def test_a_lost_answer_does_not_change_twice(zk: MemoryZooKeeper) -> None:
    await zk.multi([Create("/config"), Create(CHANGES), Create("/config/topics"), Create("/config/topics/t", b"")])
    zk.lose_replies(1)

    def longer(before: dict[str, str]) -> dict[str, str]:
        return {"list": before.get("list", "") + "a"}

    await change_overrides(zk, configs.TOPICS, "t", longer, lambda after: None)
    znode = zk.tree.read(configs.topic_path("t"))
    assert znode is not None
    assert configs.decode(znode.data, "t") == {"list": "a"}
    assert notified(zk) == [("topics", "t")]


async def test_what_zookeeper_does_not_take_is_refused_before_it_is_sent(zk: MemoryZooKeeper) -> None:
    """It closes the broker's connection on a request above its jute.maxbuffer."""
    await change(zk, configs.TOPICS, "t", size="1")
    with pytest.raises(ApiError, match="900000") as refused:
        await change(zk, configs.TOPICS, "t", size="1" * CONTENT_BYTES_MAX)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    with pytest.raises(ApiError, match="too long") as refused:
        await change(zk, configs.USERS, "u" * configs.PATH_BYTES_MAX, size="1")
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert notified(zk) == [("topics", "t")]


async def test_settings_that_one_server_took_may_become_fewer(zk: MemoryZooKeeper) -> None:
    """Its jute.maxbuffer is larger than the usual one."""
    await change(zk, configs.TOPICS, "t", size="1")
    large = {"a": "1" * 600_000, "b": "1" * 600_000, "c": "1"}
    await zk.multi([SetData(configs.topic_path("t"), configs.encode(large))])

    def fewer(before: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in before.items() if name != "c"}

    await change_overrides(zk, configs.TOPICS, "t", fewer, lambda after: None)
    znode = zk.tree.read(configs.topic_path("t"))
    assert znode is not None
    assert configs.decode(znode.data).keys() == {"a", "b"}
