"""Changed settings reach the logs of many replicas in turns, and once for changes that come together."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.model import TopicPartition
from logyard.broker.portions import AT_ONCE
from logyard.broker.replication.config_news import HANDED_OUT, ConfigNews
from tests.support.longest_turn import longest_turn_uncollected
from tests.support.replica_world import World

MANY = 2 * AT_ONCE // HANDED_OUT
TPS = [TopicPartition("flights", number) for number in range(MANY)]
OLD, NEW, NEWEST = (TopicConfig(retention_ms=number) for number in range(3))


@pytest.fixture
def world() -> World:
    made = World()
    made.config = OLD
    made.tell(*(made.order(tp, replicas=(1,)) for tp in TPS))
    made.advance(1000)
    return made


def having(world: World, config: TopicConfig) -> int:
    return sum(world.log(tp).config is config for tp in TPS)


def test_a_portion_of_logs_in_each_turn(world: World) -> None:
    world.config = NEW
    world.replicas.topic_configs_changed(None)
    assert 0 < having(world, NEW) <= AT_ONCE // HANDED_OUT
    world.advance(0)
    assert having(world, NEW) == MANY
    assert not world.timers


def test_what_changes_meanwhile_is_looked_for_once_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    handed_out: list[str] = []

    def topic_config(topic: str) -> TopicConfig:
        handed_out.append(topic)
        return world.config

    monkeypatch.setattr(world.replicas.hosted, "topic_config", topic_config)
    world.config = NEW
    world.replicas.topic_configs_changed(None)
    world.config = NEWEST
    for _ in range(100):
        world.replicas.topic_configs_changed(["flights"])
        world.replicas.topic_configs_changed(["others"])
    world.advance(0)
    assert having(world, NEWEST) == MANY
    assert len(handed_out) == 2 * MANY
    world.replicas.topic_configs_changed(["others"])
    world.advance(0)
    assert len(handed_out) == 2 * MANY
    assert not world.timers


def test_a_log_that_fails_keeps_no_other_from_its_settings(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def topic_config(topic: str) -> TopicConfig:
        asked.append(topic)
        if len(asked) == 2:
            raise RuntimeError("of one replica")
        return world.config

    monkeypatch.setattr(world.replicas.hosted, "topic_config", topic_config)
    world.config = NEW
    world.replicas.topic_configs_changed(None)
    world.replicas.requests.take_offline(TPS[-1:])
    world.advance(0)
    assert len(asked) == MANY - 1
    assert having(world, NEW) == MANY - 2
    assert world.log(TPS[-1]).config is OLD


def test_a_broker_that_stops_hands_out_nothing_more(world: World) -> None:
    world.config = NEW
    world.replicas.topic_configs_changed(None)
    before = having(world, NEW)
    world.replicas.close()
    world.advance(0)
    assert having(world, NEW) == before < MANY


async def test_the_loop_is_not_held_up_by_very_many() -> None:
    """At once they took 2.8 s where each topic has settings of its own, which are built."""
    partitions: dict[TopicPartition, Any] = {}
    for number in range(100_000):
        tp = TopicPartition("flights", number)
        log = SimpleNamespace(config=OLD)
        partitions[tp] = SimpleNamespace(tp=tp, log=log, advance_high_watermark=lambda: False)
    hosted: Any = SimpleNamespace(
        partitions=partitions, topic_config=lambda topic: NEW, timers=asyncio.get_running_loop()
    )
    async with longest_turn_uncollected() as longest:
        ConfigNews(hosted).changed(None)
        async with asyncio.timeout(30):
            while partitions[tp].log.config is not NEW:
                await asyncio.sleep(0)
    assert all(each.log.config is NEW for each in partitions.values())
    assert longest.seconds < 0.03
