"""A broker whose ZooKeeper session ends when it is about to register: its logs took long to load, perhaps."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from logyard.broker import tasks
from logyard.broker.broker import Broker, real_environment
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes import brokers
from logyard.broker.znodes.ops import Create, OpResult, ZkOp
from tests.support.inside_broker import SETTINGS


class Ending(MemoryZooKeeper):
    """Its first session ends when the broker registers."""

    ended = False

    async def multi(self, ops: Sequence[ZkOp]) -> list[OpResult]:
        if not self.ended and any(isinstance(op, Create) and op.path == brokers.path(1) for op in ops):
            self.ended = True
            self.tree.expire(self.session_id)
        return await super().multi(ops)


async def test_it_registers_in_the_next_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "PAUSE_S", 0.01)
    settings = {**SETTINGS, "log.dirs": str(tmp_path)}
    config = BrokerConfig.parse("\n".join(f"{key}={value}" for key, value in settings.items()))
    world = real_environment(config)
    zk = Ending(ZooKeeperTree(world.clock), reconnect_s=0.05)
    world.open_zookeeper = lambda: zk
    world.open_http = None
    broker = Broker(config, world)
    try:
        async with asyncio.timeout(30):
            await broker.start()
            assert zk.ended
            assert broker.components is not None
            (registered,) = await zk.read([brokers.path(1)])
            assert registered is not None
            assert registered.ephemeral_owner == zk.session_id
            assert registered.czxid == broker.components.broker_epoch
            while not broker.components.controller.is_active:
                await asyncio.sleep(0.01)
    finally:
        await broker.close()
        world.close()
