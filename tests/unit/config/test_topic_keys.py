"""Topic settings: overrides over the broker's defaults, refused by name, and described with their sources."""

import difflib
from functools import partial
from typing import Any

import pytest

from logyard.broker.config.broker import (
    BrokerConfig,
    topic_config,
    validate_dynamic_overrides,
    validate_topic_overrides,
)
from logyard.broker.config.entries import ConfigSource
from logyard.broker.config.topic import LONG_MAX, TopicConfig
from logyard.broker.config.topic_keys import TOPIC_KEYS
from logyard.broker.errors import ApiError, ErrorCode

ZK = "zookeeper.connect=localhost:2181\n"


def test_kafkas_defaults() -> None:
    assert BrokerConfig.parse(ZK).topic_defaults() == TopicConfig()


def test_every_field_has_a_key() -> None:
    assert {key.field for key in TOPIC_KEYS.values()} == set(TopicConfig.__slots__)


def test_overrides() -> None:
    defaults = BrokerConfig.parse(ZK + "log.segment.bytes=2000\nmin.insync.replicas=2").topic_defaults()
    config = topic_config(
        defaults,
        {
            "cleanup.policy": "compact, delete",
            "retention.ms": "-1",
            "min.cleanable.dirty.ratio": "0.25",
            "leader.replication.throttled.replicas": "0:1,1:2",
            "segment.ms": "nonsense in the znode",
            "unknown": "1",
        },
    )
    assert config.cleanup_policy == {"compact", "delete"}
    assert (config.retention_ms, config.segment_bytes, config.min_insync_replicas) == (-1, 2000, 2)
    assert config.min_cleanable_dirty_ratio == 0.25
    assert config.leader_replication_throttled_replicas == ("0:1", "1:2")
    assert config.segment_ms == 604_800_000


def test_the_old_timestamp_bound_holds_where_the_new_ones_are_not_used() -> None:
    config = topic_config(TopicConfig(), {"message.timestamp.difference.max.ms": "5"})
    assert (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) == (5, 5)
    config = topic_config(config, {"message.timestamp.before.max.ms": "7"})
    assert config.message_timestamp_before_max_ms == 7
    assert TopicConfig().message_timestamp_after_max_ms == LONG_MAX


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"cleanup.policy": "compress"}, "a list of compact, delete"),
        ({"retension.ms": "1"}, "nearest: retention.ms"),
        ({"retention.ms": "-2"}, "at least -1"),
        ({"segment.bytes": "13"}, "at least 14"),
        ({"compression.type": "brotli"}, "one of"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "may not exceed"),
        ({"leader.replication.throttled.replicas": "0-1"}, "partition:broker"),
    ],
)
def test_bad_overrides(overrides: dict[str, str], words: str) -> None:
    with pytest.raises(ApiError, match=words) as caught:
        validate_topic_overrides(overrides)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_a_topic_without_a_policy_keeps_all() -> None:
    """As on Apache Kafka, with which it may share the topic: what one of them kept, the other would delete."""
    validate_topic_overrides({"cleanup.policy": ""})
    config = topic_config(TopicConfig(), {"cleanup.policy": ""})
    assert not config.deletes
    assert not config.compacted
    defaults = BrokerConfig.parse("broker.id=1\nlog.dirs=/d\nzookeeper.connect=zk:2181\nlog.cleanup.policy=")
    assert defaults.topic_defaults().cleanup_policy == frozenset()


def test_all_bad_overrides_are_named() -> None:
    with pytest.raises(ApiError, match=r"retention\.ms.*; .*segment\.bytes"):
        validate_topic_overrides({"retention.ms": "x", "segment.bytes": "y"})


def test_few_of_many_unknown_names_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes milliseconds, and a client may name thousands, of brokers before its rights are asked for."""
    looked_up: list[str] = []
    close_matches = difflib.get_close_matches

    def noted(name: str, *more: Any, **how: Any) -> list[str]:
        looked_up.append(name)
        return close_matches(name, *more, **how)

    monkeypatch.setattr(difflib, "get_close_matches", noted)
    many = {"retension.ms": "1", "x" * 1000: "1"} | {f"message.timestamp.difference.max.m{n}": "1" for n in range(400)}
    config = BrokerConfig.parse("broker.id=1\nzookeeper.connect=z:1\nlog.dirs=/d\n")
    for refuse in (validate_topic_overrides, partial(validate_dynamic_overrides, config, cluster_wide=True)):
        looked_up.clear()
        with pytest.raises(ApiError, match=r"retension\.ms.*nearest") as caught:
            refuse(many)
        assert len(looked_up) < 10
        assert "x" * 1000 not in looked_up
        assert len(str(caught.value).encode()) < 2**15, "a text of the protocol is no longer"


@pytest.mark.parametrize("replicas", ["*", "0:1,2:3", "", "none"])
def test_good_overrides(replicas: str) -> None:
    validate_topic_overrides({"leader.replication.throttled.replicas": replicas, "cleanup.policy": "compact"})


def test_describe() -> None:
    broker = BrokerConfig.parse(ZK + "log.retention.hours=1").with_dynamic({}, {"message.max.bytes": "99"})
    entries = {entry.name: entry for entry in broker.describe_topic({"segment.bytes": "2000"})}
    assert sorted(entries) == sorted(TOPIC_KEYS)
    assert (entries["segment.bytes"].value, entries["segment.bytes"].source) == ("2000", ConfigSource.TOPIC)
    assert [s.source for s in entries["segment.bytes"].synonyms] == [ConfigSource.TOPIC, ConfigSource.DEFAULT]
    # As Kafka 3.9 answers it: hours that stand for milliseconds are in force, and are not named as their source.
    assert (entries["retention.ms"].value, entries["retention.ms"].source) == ("3600000", ConfigSource.DEFAULT)
    assert entries["max.message.bytes"].value == "99"
    assert entries["max.message.bytes"].source is ConfigSource.DYNAMIC_DEFAULT_BROKER
    assert entries["cleanup.policy"].value == "delete"
    assert entries["follower.replication.throttled.replicas"].value == ""
