"""What a broker knows of /feature: at its start, after a change, after a new session, and where it cannot be read."""

import asyncio

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.metadata.features import FinalizedFeatures
from logyard.broker.zk.feature_watcher import FeatureWatcher
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes import feature
from logyard.broker.znodes.ops import Create, Delete, SetData, ZkOp

TXN = "transaction.version"


def content(level: int, status: int = feature.ENABLED) -> bytes:
    return feature.encode(feature.Features(status, {TXN: level}))


class World:
    """A broker's watcher and somebody else who writes: `await world.write(op)`, then look at `world.features`."""

    def __init__(self) -> None:
        self.tree = ZooKeeperTree(ManualClock())
        self.zk, self.admin = MemoryZooKeeper(self.tree), MemoryZooKeeper(self.tree)
        self.features = FinalizedFeatures()
        self.notes: list[str] = []
        self.watcher = FeatureWatcher(self.zk, self.features, self.notes.append)

    @property
    def level(self) -> int:
        return self.features.levels.get(TXN, 0)

    async def write(self, op: ZkOp) -> None:
        await self.admin.multi([op])
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
def world() -> World:
    return World()


async def test_a_level_is_known_from_the_start_and_follows(world: World) -> None:
    await world.watcher.start()
    assert (world.features.epoch, world.level) == (-1, 0)
    await world.write(Create(feature.PATH, content(1)))
    assert (world.features.epoch, world.level) == (0, 1)
    await world.write(SetData(feature.PATH, content(2)))
    assert (world.features.epoch, world.level) == (1, 2)
    await world.write(SetData(feature.PATH, content(2, feature.DISABLED)))
    assert world.level == 0
    await world.write(Delete(feature.PATH))
    assert (world.features.epoch, world.level) == (-1, 0)
    await world.watcher.stop()


async def test_what_cannot_be_read_changes_nothing(world: World) -> None:
    await world.write(Create(feature.PATH, content(2)))
    await world.watcher.start()
    await world.write(SetData(feature.PATH, b"{"))
    assert world.level == 2
    assert "stay as they were" in world.notes[0]
    await world.write(SetData(feature.PATH, content(1)))
    assert world.level == 1
    await world.watcher.stop()


async def test_a_level_of_a_later_version_is_told(world: World) -> None:
    await world.write(Create(feature.PATH, content(3)))
    await world.watcher.start()
    assert "does not support" in world.notes[0]
    await world.watcher.stop()


async def test_a_change_between_two_sessions_is_seen(world: World) -> None:
    await world.write(Create(feature.PATH, content(1)))
    await world.watcher.start()
    world.tree.expire(world.zk.session_id)
    await world.write(SetData(feature.PATH, content(2)))
    await world.watcher.renew()
    assert world.level == 2
    await world.watcher.stop()
