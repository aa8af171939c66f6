"""Each of a topic's settings acts, from the next call on: one proof per setting.

A proof gets a log whose settings are the defaults (with small segments), changes one, and looks at what became of it.
"""

import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logyard.broker.cleaner import selection
from logyard.broker.config.broker import topic_config, validate_topic_overrides
from logyard.broker.config.topic import TopicConfig
from logyard.broker.config.topic_keys import TOPIC_KEYS
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.leases.cleanable import cleanable_end_of
from logyard.broker.log import layout
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.retention import delete_old_segments
from logyard.broker.metadata.dynamic_configs import DynamicConfigs
from logyard.broker.records import compression
from logyard.broker.records.batch import TimestampType, parse_header, records
from logyard.broker.replication.events import FetchedPartition
from logyard.broker.server.handlers import fetch
from tests.support.logs import NOW, TP, content, new_log, offsets, produced
from tests.support.topic_settings import IGNORED, OF_2_5, SINCE, TIERED

ROOT = Path(__file__).resolve().parents[3]
DAY = 86_400_000

PROVED_ELSEWHERE = {
    "delete.retention.ms": "tests/unit/cleaner/test_cleaner.py",
    "file.delete.delay.ms": "tests/unit/log/test_flushes_and_checkpoints.py",
    "flush.ms": "tests/unit/log/test_flushes_and_checkpoints.py",
    "follower.replication.throttled.replicas": "tests/unit/replication/test_throttle.py",
    "leader.replication.throttled.replicas": "tests/unit/replication/test_throttle.py",
    "min.insync.replicas": "tests/unit/replication/test_produce.py",
    "unclean.leader.election.enable": "tests/unit/controller/test_brokers.py",
}

Proof = Callable[[PartitionLog], None]
PROOFS: dict[str, Proof] = {}


def proves(name: str) -> Callable[[Proof], Proof]:
    def keep(proof: Proof) -> Proof:
        PROOFS[name] = proof
        return proof

    return keep


def change(log: PartitionLog, **overrides: object) -> None:
    """Set overrides (dots as underscores) as the broker does when the topic's znode has changed."""
    base = {"segment.bytes": "100000", "index.interval.bytes": "0"}
    own = {name.replace("_", "."): str(value) for name, value in overrides.items()}
    validate_topic_overrides(own)
    log.config = topic_config(TopicConfig(), base | own)


def append(log: PartitionLog, size: int = 100, *, at_ms: int = NOW, timestamp: int = NOW, count: int = 1) -> int:
    """Append a batch; returns its base offset."""
    data = produced([b"v" * size] * count, timestamp=timestamp)
    return log.append_as_leader(data, 0, now_ms=at_ms).first_offset


def refusal(log: PartitionLog, size: int = 100, **fields: Any) -> ErrorCode:
    """The refusal of a batch that was let in before."""
    with pytest.raises(ApiError) as caught:
        log.append_as_leader(produced([b"v" * size], **fields), 0, now_ms=NOW)
    return caught.value.code


def is_rolled(log: PartitionLog) -> bool:
    """Whether the last batch began a segment."""
    return offsets(content(log))[-1][0] == log.segments.active.base_offset


@proves("cleanup.policy")
def _(log: PartitionLog) -> None:
    append(log)
    change(log, cleanup_policy="compact")
    assert refusal(log, key=None) is ErrorCode.INVALID_RECORD
    log.roll(1, NOW)
    log.set_high_watermark(1)
    change(log, cleanup_policy="compact", retention_ms=1)
    assert delete_old_segments(log, NOW + DAY) == 0
    change(log, cleanup_policy="compact,delete", retention_ms=1)
    assert delete_old_segments(log, NOW + DAY) == 1


def _codecs(log: PartitionLog) -> list[str]:
    data, found, position = content(log), [], 0
    while position < len(data):
        header = parse_header(data, position)
        found.append(compression.NAMES[header.compression])
        assert records(data, position)[0].value == b"v" * 2000
        position += header.length
    return found


@proves("compression.type")
def _(log: PartitionLog) -> None:
    append(log, 2000)
    wanted = ("gzip", "snappy", "lz4", "zstd", "uncompressed", "producer")
    for codec in wanted:
        change(log, compression_type=codec)
        before = log.size
        log.append_as_leader(produced([b"v" * 2000], compression=compression.GZIP), 0, now_ms=NOW)
        small = codec != "uncompressed"
        assert (log.size - before < 300) is small, "the ratio"
    assert _codecs(log) == ["none", "gzip", "snappy", "lz4", "zstd", "none", "gzip"]


def _sizes_by_level(log: PartitionLog, codec: str, setting: str, levels: tuple[int, int]) -> list[int]:
    words = b" ".join(b"%d" % (zlib.crc32(b"%d" % n) % 300) for n in range(6000))
    sizes = []
    for level in levels:
        change(log, **{"compression_type": codec, setting: level})
        before = log.size
        log.append_as_leader(produced([words]), 0, now_ms=NOW)
        assert records(log.segments.active.read(log.size - before, before))[0].value == words
        sizes.append(log.size - before)
    return sizes


@proves("compression.gzip.level")
def _(log: PartitionLog) -> None:
    fast, thorough = _sizes_by_level(log, "gzip", "compression_gzip_level", (1, 9))
    assert thorough < fast


@proves("compression.zstd.level")
def _(log: PartitionLog) -> None:
    fast, thorough = _sizes_by_level(log, "zstd", "compression_zstd_level", (-50, 19))
    assert thorough < fast


@proves("flush.messages")
def _(log: PartitionLog) -> None:
    append(log, count=5)
    assert log.recovery_point == 0
    change(log, flush_messages=3)
    append(log)
    assert log.recovery_point == 6
    append(log, count=2)
    assert log.recovery_point == 6
    append(log)
    assert log.recovery_point == 9


@proves("index.interval.bytes")
def _(log: PartitionLog) -> None:
    for _ in range(5):
        append(log)
    assert len(log.segments.active.index) == 4
    change(log, index_interval_bytes=10_000)
    for _ in range(5):
        append(log)
    assert len(log.segments.active.index) == 4


@proves("max.compaction.lag.ms")
def _(log: PartitionLog) -> None:
    append(log)
    change(log, max_compaction_lag_ms=1000)
    append(log, timestamp=NOW + 5000)
    assert not is_rolled(log), "not compacted"
    change(log, cleanup_policy="compact", max_compaction_lag_ms=1000)
    append(log, timestamp=NOW + 5000)
    assert is_rolled(log)
    change(log, cleanup_policy="compact", max_compaction_lag_ms=DAY, min_cleanable_dirty_ratio=1)
    assert not selection.judge(log, 1, 1, NOW, NOW + 5000).is_due
    change(log, cleanup_policy="compact", max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=1)
    assert selection.judge(log, 0, 2, NOW, NOW + 5000).is_due


@proves("max.message.bytes")
def _(log: PartitionLog) -> None:
    append(log, 500)
    change(log, max_message_bytes=400)
    assert refusal(log, 500) is ErrorCode.MESSAGE_TOO_LARGE
    append(log, 200)


@proves("message.downconversion.enable")
def _(log: PartitionLog) -> None:
    configs = DynamicConfigs(1, lambda overrides: topic_config(TopicConfig(), overrides))

    def answered(version: int) -> ErrorCode:
        answer = FetchedPartition(TP, records=b"batch")
        fetch.refuse_unreadable(configs, version, [answer])
        assert answer.records == (b"batch" if answer.error is ErrorCode.NONE else b"")
        return answer.error

    assert [answered(version) for version in (0, 3, 4)] == [ErrorCode.NONE] * 3
    configs.set_topic(TP.topic, {"message.downconversion.enable": "false"})
    refused = ErrorCode.UNSUPPORTED_VERSION
    assert [answered(version) for version in (0, 3, 4)] == [refused, refused, ErrorCode.NONE]
    configs.set_topic(TP.topic, {"compression.type": "zstd"})
    assert answered(9) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@proves("message.timestamp.difference.max.ms")
def _(log: PartitionLog) -> None:
    append(log, timestamp=NOW - 5000)
    change(log, message_timestamp_difference_max_ms=1000)
    assert refusal(log, timestamp=NOW - 5000) is ErrorCode.INVALID_TIMESTAMP
    assert refusal(log, timestamp=NOW + 5000) is ErrorCode.INVALID_TIMESTAMP


@proves("message.timestamp.before.max.ms")
def _(log: PartitionLog) -> None:
    append(log, timestamp=NOW - 5000)
    change(log, message_timestamp_before_max_ms=1000)
    assert refusal(log, timestamp=NOW - 5000) is ErrorCode.INVALID_TIMESTAMP
    append(log, timestamp=NOW + 5000)


@proves("message.timestamp.after.max.ms")
def _(log: PartitionLog) -> None:
    append(log, timestamp=NOW + 5000)
    change(log, message_timestamp_after_max_ms=1000)
    assert refusal(log, timestamp=NOW + 5000) is ErrorCode.INVALID_TIMESTAMP
    append(log, timestamp=NOW - 5000)


@proves("message.timestamp.type")
def _(log: PartitionLog) -> None:
    append(log, timestamp=NOW - 5000)
    change(log, message_timestamp_type="LogAppendTime")
    append(log, timestamp=NOW - 5000, at_ms=NOW)
    data = content(log)
    first = parse_header(data)
    second = parse_header(data, first.length)
    assert (first.timestamp_type, first.max_timestamp) == (TimestampType.CREATE_TIME, NOW - 5000)
    assert (second.timestamp_type, second.max_timestamp) == (TimestampType.LOG_APPEND_TIME, NOW)


@proves("min.cleanable.dirty.ratio")
def _(log: PartitionLog) -> None:
    for number in range(4):
        append(log)
        log.roll(number + 1, NOW)
    change(log, cleanup_policy="compact")
    assert not selection.judge(log, 3, 4, NOW, NOW).is_due, "a quarter is dirty"
    change(log, cleanup_policy="compact", min_cleanable_dirty_ratio=0.2)
    assert selection.judge(log, 3, 4, NOW, NOW).is_due


@proves("min.compaction.lag.ms")
def _(log: PartitionLog) -> None:
    for number in range(3):
        append(log, timestamp=NOW + number * 1000)
        log.roll(number + 1, NOW)
    log.set_high_watermark(3)
    assert cleanable_end_of(log, 0, NOW + 3000) == 3
    change(log, min_compaction_lag_ms=1500)
    assert cleanable_end_of(log, 0, NOW + 3000) == 2


@proves("preallocate")
def _(log: PartitionLog) -> None:
    append(log)
    change(log, preallocate="true")
    log.roll(1, NOW)
    append(log)
    assert log.disk.status(log.segments.active.path(layout.LOG)).size == log.config.segment_bytes
    log.roll(2, NOW)
    assert log.disk.status(log.segments[1].path(layout.LOG)).size == log.segments[1].size < 1000


@proves("retention.bytes")
def _(log: PartitionLog) -> None:
    for number in range(4):
        append(log, 1000)
        log.roll(number + 1, NOW)
    log.set_high_watermark(4)
    assert delete_old_segments(log, NOW) == 0
    change(log, retention_bytes=2100)
    assert delete_old_segments(log, NOW) == 2
    assert log.log_start_offset == 2


@proves("retention.ms")
def _(log: PartitionLog) -> None:
    for number in range(3):
        append(log, timestamp=NOW + number * 1000)
        log.roll(number + 1, NOW)
    log.set_high_watermark(3)
    assert delete_old_segments(log, NOW + 3000) == 0
    change(log, retention_ms=1500)
    assert delete_old_segments(log, NOW + 3000) == 2


@proves("segment.bytes")
def _(log: PartitionLog) -> None:
    append(log, 1000)
    append(log, 1000)
    assert not is_rolled(log)
    change(log, segment_bytes=3000)
    append(log, 1000)
    assert is_rolled(log)
    assert refusal(log, 3000) is ErrorCode.RECORD_LIST_TOO_LARGE


@proves("segment.index.bytes")
def _(log: PartitionLog) -> None:
    for _ in range(5):
        append(log)
    assert len(log.segments) == 1
    change(log, segment_index_bytes=24)
    log.roll(5, NOW)
    assert log.disk.status(log.segments.active.path(layout.INDEX)).size == 24
    for _ in range(5):
        append(log)
    assert len(log.segments) > 2, "a full index begins a segment"


@proves("segment.ms")
def _(log: PartitionLog) -> None:
    append(log)
    append(log, timestamp=NOW + 5000)
    assert not is_rolled(log)
    change(log, segment_ms=1000)
    append(log, timestamp=NOW + 900)
    assert not is_rolled(log)
    append(log, timestamp=NOW + 1001)
    assert is_rolled(log)


@proves("segment.jitter.ms")
def _(log: PartitionLog) -> None:
    append(log)
    change(log, segment_ms=1_000_000)
    append(log, timestamp=NOW + 999_999)
    assert not is_rolled(log)
    change(log, segment_ms=1_000_000, segment_jitter_ms=1_000_000)
    append(log, timestamp=NOW + 999_999)
    assert is_rolled(log), "earlier than without"


def test_every_setting_has_a_proof() -> None:
    assert set(TOPIC_KEYS) == OF_2_5 | SINCE
    assert len(OF_2_5) == 26
    assert set(PROOFS) | set(PROVED_ELSEWHERE) | TIERED | IGNORED == set(TOPIC_KEYS)
    for name, path in PROVED_ELSEWHERE.items():
        text = (ROOT / path).read_text()
        assert re.search(rf"{re.escape(name)}|{name.replace('.', '_')}", text), f"{path} does not speak of {name}"


def test_every_setting_but_those_without_meaning_is_read() -> None:
    broker = ROOT / "broker"
    files = [path for path in broker.rglob("*.py") if path.parent.name != "config"]
    text = "\n".join(path.read_text() for path in files)
    unread = {name for name in TOPIC_KEYS if f".{name.replace('.', '_')}" not in text}
    # The old bound is turned into the two new ones where a topic's settings are read (broker/config/broker.py).
    assert unread == TIERED | IGNORED | {"message.timestamp.difference.max.ms"}


@pytest.mark.parametrize("name", sorted(PROOFS))
def test_it_acts_at_once(name: str) -> None:
    log = new_log()
    change(log)
    PROOFS[name](log)
