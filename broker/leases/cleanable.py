"""The part of a log that a compaction may clean now: the rule of compaction/ranges.py, applied to a log of this
broker."""

from collections.abc import Iterator

from logyard.broker.compaction.ranges import SegmentRange, cleanable_end
from logyard.broker.log.partition_log import PartitionLog


def closed_segments(log: PartitionLog) -> Iterator[SegmentRange]:
    """Yield the closed segments of a log, in the order of their offsets."""
    for number, segment in enumerate(log.segments):
        if segment is not log.segments.active:
            yield SegmentRange(segment.base_offset, log.end_of(number) - 1, segment.size, segment.max_timestamp)


def cleanable_end_of(log: PartitionLog, clean_offset: int, now_ms: int) -> int:
    """Return the offset below which a compaction may clean this log now (`end_offset` in docs/leases.md).

    :param clean_offset: the log is clean below it.
    :param now_ms: the wall clock, which `min.compaction.lag.ms` is measured against.
    """
    return cleanable_end(
        closed_segments(log),
        active_base=log.segments.active.base_offset,
        last_stable_offset=log.last_stable_offset,
        high_watermark=log.high_watermark,
        clean_offset=clean_offset,
        log_start_offset=log.log_start_offset,
        now_ms=now_ms,
        min_lag_ms=log.config.min_compaction_lag_ms,
    )
