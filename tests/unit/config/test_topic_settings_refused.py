"""A bad value of a topic's setting is refused: one for each setting."""

import re

import pytest

from logyard.broker.config.broker import validate_topic_overrides
from logyard.broker.config.topic_keys import TOPIC_KEYS
from logyard.broker.errors import ApiError, ErrorCode

BAD = {
    "cleanup.policy": "shrink",
    "compression.type": "brotli",
    "compression.gzip.level": "10",
    "compression.lz4.level": "18",
    "compression.zstd.level": "23",
    "delete.retention.ms": "-1",
    "file.delete.delay.ms": "-1",
    "flush.messages": "0",
    "flush.ms": "-1",
    "follower.replication.throttled.replicas": "0-1",
    "leader.replication.throttled.replicas": "all",
    "index.interval.bytes": "-1",
    "local.retention.bytes": "-3",
    "local.retention.ms": "-3",
    "max.compaction.lag.ms": "0",
    "max.message.bytes": "-1",
    "message.downconversion.enable": "perhaps",
    "message.timestamp.after.max.ms": "-1",
    "message.timestamp.before.max.ms": "-1",
    "message.timestamp.difference.max.ms": "-1",
    "message.timestamp.type": "Now",
    "min.cleanable.dirty.ratio": "1.1",
    "min.compaction.lag.ms": "-1",
    "min.insync.replicas": "0",
    "preallocate": "2",
    "remote.storage.enable": "true",
    "retention.bytes": "much",
    "retention.ms": "-2",
    "segment.bytes": "13",
    "segment.index.bytes": "3",
    "segment.jitter.ms": "-1",
    "segment.ms": "0",
    "unclean.leader.election.enable": "maybe",
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_bad_value_is_refused_with_name_and_range(name: str) -> None:
    assert set(BAD) | {"message.format.version"} == set(TOPIC_KEYS)
    with pytest.raises(ApiError) as caught:
        validate_topic_overrides({name: BAD[name]})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    message = caught.value.message or ""
    assert name in message
    allowed = TOPIC_KEYS[name].key.allowed.text
    assert allowed in message
    assert re.search(r"at least|to |one of|list|true|number|integer|pairs|not allowed", message), message
