"""The cleaning of one broker, put together from its configuration."""

from typing import Any

import pytest

from logyard.broker.cleaner.service import CleaningService
from logyard.broker.client import http_get
from logyard.broker.client.http_get import NoAnswer
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.model import BrokerInfo, TopicPartition
from logyard.broker.znodes import brokers
from logyard.broker.znodes.ops import Znode
from tests.support.cleaning_world import Worker
from tests.support.lease_world import TP, LeaseWorld

BASE = "broker.id=1\nzookeeper.connect=127.0.0.1:2181\n"


class _Registered:
    """A ZooKeeper that knows broker 2 and nobody else."""

    async def read(self, paths: list[str]) -> list[Znode | None]:
        info = BrokerInfo(2, (), http="127.0.0.1:7002")
        known = Znode(brokers.encode(info, 0), 0, 1) if paths == [brokers.path(2)] else None
        return [known]


def side_of(world: LeaseWorld, text: str = "") -> CleaningService:
    zk: Any = _Registered()
    return CleaningService(
        BrokerConfig.parse(BASE + text),
        store=world.store,
        lease_service=world.lease_service,
        metadata=world.metadata,
        zk=zk,
        clock=world.clock,
        run_blocking=world.ports.run_blocking,
        open_worker=lambda: Worker(world),
    )


async def test_settings_change_while_it_runs() -> None:
    async with LeaseWorld() as world:
        side = side_of(world)
        assert side.cleaner is not None
        before = side.cleaner.settings
        text = "log.cleaner.threads=2\nlog.cleaner.io.max.bytes.per.second=1000\nlog.cleaner.backoff.ms=7"
        side.configure(BrokerConfig.parse(BASE + text))
        after = side.cleaner.settings
        assert (before.threads, after.threads, after.backoff_ms, after.bytes_per_second_each) == (1, 2, 7, 500.0)
        assert after.keys_max == before.keys_max // 2
        assert "cleaner_uncleanable_partitions_count" in side.gauges()


async def test_without_a_cleaner_of_its_own_it_still_catches_up() -> None:
    async with LeaseWorld() as world:
        side = side_of(world, "log.cleaner.enable=false")
        assert side.cleaner is None
        assert side.gauges() == {}
        side.start()
        side.configure(BrokerConfig.parse(BASE))
        await side.close()


async def test_whom_it_asks_and_where(monkeypatch: pytest.MonkeyPatch) -> None:
    async with LeaseWorld() as world:
        side = side_of(world)
        world.lead(leader=1)
        assert side.leader_of(TP) is None, "it leads itself"
        world.lead(leader=2, leader_epoch=1)
        assert side.leader_of(TP) == 2
        assert side.leader_of(TopicPartition("unknown", 0)) is None
        monkeypatch.setattr(http_get, "get", lambda address, path, login: f"{address}{path}".encode())
        assert await side.ask(2, "/decisions") == b"127.0.0.1:7002/decisions"
        with pytest.raises(NoAnswer, match="broker 3 publishes no HTTP address"):
            await side.ask(3, "/decisions")
