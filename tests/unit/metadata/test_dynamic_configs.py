"""Dynamic settings: overrides, quotas, and who hears of changes."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from logyard.broker.config.topic import TopicConfig
from logyard.broker.metadata.dynamic_configs import DynamicConfigs


def build(overrides: Mapping[str, str]) -> TopicConfig:
    fields: dict[str, Any] = {k.replace(".", "_"): int(v) for k, v in overrides.items()}
    return TopicConfig(**fields)


@pytest.fixture
def configs() -> DynamicConfigs:
    return DynamicConfigs(1, build)


def test_topics_have_their_own_or_the_shared_defaults(configs: DynamicConfigs) -> None:
    assert configs.topic_config("a") is configs.topic_config("b")
    configs.set_topic("a", {"retention.ms": "5"})
    assert configs.topic_config("a").retention_ms == 5
    assert configs.topic_config("a") is configs.topic_config("a"), "built once"
    assert configs.topic_overrides("a") == {"retention.ms": "5"}
    configs.set_topic("a", {})
    assert configs.topic_config("a") is configs.topic_config("b")


def test_only_changes_are_told(configs: DynamicConfigs) -> None:
    told: list[Iterable[str] | None] = []
    configs.on_topics(told.append)
    configs.set_topic("a", {"retention.ms": "5"})
    configs.set_topic("a", {"retention.ms": "5"})
    configs.set_topic("b", {})
    assert [list(topics or ()) for topics in told] == [["a"]]


def test_many_changes_are_told_at_once(configs: DynamicConfigs) -> None:
    told: list[Iterable[str] | None] = []
    configs.on_topics(told.append)
    settings = {f"t-{number}": {"retention.ms": "5"} for number in range(1000)}
    configs.set_topics(settings | {"b": {}})
    assert [list(topics or ()) for topics in told] == [list(settings)]
    configs.set_topics(settings)
    assert len(told) == 1


def test_new_broker_defaults_reach_every_topic(configs: DynamicConfigs) -> None:
    told: list[Iterable[str] | None] = []
    configs.on_topics(told.append)
    configs.set_topic("a", {"retention.ms": "5"})
    configs.set_build(lambda o: build({"segment.bytes": "1024", **o}))
    assert told[-1] is None
    assert (configs.topic_config("a").segment_bytes, configs.topic_config("a").retention_ms) == (1024, 5)
    assert configs.topic_config("b").segment_bytes == 1024


def test_brokers(configs: DynamicConfigs) -> None:
    configs.set_broker("<default>", {"x": "1", "y": "1"})
    configs.set_broker("1", {"y": "2"})
    configs.set_broker("2", {"y": "3"})
    assert configs.entity_overrides("2") == {"y": "3"}


def test_quotas_of_addresses(configs: DynamicConfigs) -> None:
    told: list[int] = []
    configs.on_quotas(lambda: told.append(1))
    configs.set_ip_quota("10.0.0.1", {"connection_creation_rate": "3"})
    configs.set_ip_quota("10.0.0.1", {"connection_creation_rate": "3"})
    assert (configs.ip_quotas(), len(told)) == ({"10.0.0.1": {"connection_creation_rate": "3"}}, 1)
