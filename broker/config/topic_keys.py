"""The keys of topics: type, range, the TopicConfig field and the broker keys they fall back to (Kafka 3.9)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from logyard.broker.config.key_types import (
    ANYTHING,
    Allowed,
    ConfigType,
    ConfigValue,
    Key,
    any_of,
    at_least,
    between,
    one_of,
)
from logyard.broker.config.keys import COMPRESSION_TYPES, KEYS
from logyard.broker.config.topic import LONG_MAX

_THROTTLED = re.compile(r"[0-9]+:[0-9]+")

_REPLICA_LIST = Allowed(
    "partition:broker pairs, or *",
    lambda value: (
        isinstance(value, tuple)
        and (value in ((), ("*",), ("none",)) or all(_THROTTLED.fullmatch(item) for item in value))
    ),
)


@dataclass(frozen=True, slots=True)
class TopicKey:
    """A topic's key, and the broker keys that its default comes from: the first that is set."""

    key: Key
    synonyms: tuple[str, ...]

    @property
    def field(self) -> str:
        """The name in TopicConfig."""
        return self.key.name.replace(".", "_")


def _topic_key(
    name: str, *synonyms: str, allowed: Allowed = ANYTHING, default: ConfigValue = None
) -> tuple[str, TopicKey]:
    """A key with its own range; type and default are those of its first synonym."""
    broker = KEYS[synonyms[0]]
    if default is None:
        default = next((KEYS[s].default for s in synonyms if KEYS[s].default is not None), None)
    return name, TopicKey(Key(name, broker.type, default, allowed), synonyms)


def _own(name: str, kind: ConfigType, default: ConfigValue, allowed: Allowed = ANYTHING) -> tuple[str, TopicKey]:
    """Return a key whose default comes from no broker key."""
    return name, TopicKey(Key(name, kind, default, allowed), ())


_WEEK_MS = 604_800_000

TOPIC_KEYS: Mapping[str, TopicKey] = dict(
    [
        _topic_key("cleanup.policy", "log.cleanup.policy", allowed=any_of("compact", "delete")),
        _topic_key("compression.type", "compression.type", allowed=one_of(*COMPRESSION_TYPES)),
        _topic_key("compression.gzip.level", "compression.gzip.level", allowed=KEYS["compression.gzip.level"].allowed),
        _topic_key("compression.lz4.level", "compression.lz4.level", allowed=between(1, 17)),
        _topic_key("compression.zstd.level", "compression.zstd.level", allowed=between(-131072, 22)),
        _topic_key("delete.retention.ms", "log.cleaner.delete.retention.ms", allowed=at_least(0)),
        _topic_key("file.delete.delay.ms", "log.segment.delete.delay.ms", allowed=at_least(0)),
        _topic_key("flush.messages", "log.flush.interval.messages", allowed=at_least(1)),
        _topic_key("flush.ms", "log.flush.interval.ms", "log.flush.scheduler.interval.ms", allowed=at_least(0)),
        _own("follower.replication.throttled.replicas", ConfigType.LIST, (), _REPLICA_LIST),
        _own("leader.replication.throttled.replicas", ConfigType.LIST, (), _REPLICA_LIST),
        _topic_key("index.interval.bytes", "log.index.interval.bytes", allowed=at_least(0)),
        _topic_key("local.retention.bytes", "log.local.retention.bytes", allowed=at_least(-2)),
        _topic_key("local.retention.ms", "log.local.retention.ms", allowed=at_least(-2)),
        _topic_key("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", allowed=at_least(1)),
        _topic_key("max.message.bytes", "message.max.bytes", allowed=at_least(0)),
        _topic_key("message.downconversion.enable", "log.message.downconversion.enable"),
        _topic_key("message.format.version", "log.message.format.version"),
        _topic_key("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms", allowed=at_least(0)),
        _topic_key("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms", allowed=at_least(0)),
        _topic_key(
            "message.timestamp.difference.max.ms", "log.message.timestamp.difference.max.ms", allowed=at_least(0)
        ),
        _topic_key(
            "message.timestamp.type", "log.message.timestamp.type", allowed=one_of("CreateTime", "LogAppendTime")
        ),
        _topic_key("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", allowed=between(0, 1)),
        _topic_key("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", allowed=at_least(0)),
        _topic_key("min.insync.replicas", "min.insync.replicas", allowed=at_least(1)),
        _topic_key("preallocate", "log.preallocate"),
        _own("remote.storage.enable", ConfigType.BOOLEAN, False),
        _topic_key("retention.bytes", "log.retention.bytes"),
        _topic_key(
            "retention.ms",
            "log.retention.ms",
            "log.retention.minutes",
            "log.retention.hours",
            allowed=at_least(-1),
            default=_WEEK_MS,
        ),
        _topic_key("segment.bytes", "log.segment.bytes", allowed=at_least(14)),
        _topic_key("segment.index.bytes", "log.index.size.max.bytes", allowed=at_least(4)),
        _topic_key("segment.jitter.ms", "log.roll.jitter.ms", "log.roll.jitter.hours", allowed=at_least(0), default=0),
        _topic_key("segment.ms", "log.roll.ms", "log.roll.hours", allowed=at_least(1), default=_WEEK_MS),
        _topic_key("unclean.leader.election.enable", "unclean.leader.election.enable"),
    ]
)


def topic_problems(values: Mapping[str, ConfigValue]) -> list[str]:
    """Return a line for each relation between a topic's settings that does not hold."""
    problems: list[str] = []
    if values.get("remote.storage.enable"):
        problems.append("remote.storage.enable: true is not allowed, there is no tiered storage in this broker")
    least, most = values.get("min.compaction.lag.ms", 0), values.get("max.compaction.lag.ms", LONG_MAX)
    assert isinstance(least, int)
    assert isinstance(most, int)
    if least > most:
        problems.append(f"min.compaction.lag.ms ({least}) may not exceed max.compaction.lag.ms ({most})")
    return problems
