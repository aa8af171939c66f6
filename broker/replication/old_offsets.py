"""ListOffsets v0: where the log and its segments begin and end, instead of the place of a time.

A segment counts from when its file was last written, as in Kafka (`legacyFetchOffsetsBefore`): its base offset is
before each later timestamp. The log's end is before any timestamp that is not past.
"""

from collections.abc import Sequence
from typing import NamedTuple

from logyard.broker.log import layout
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.segment.segment import Segment
from logyard.broker.replication.events import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP


class SegmentBounds(NamedTuple):
    """A log as it was when it was asked about: its segments, and their base offsets, none below the log's start.

    `end` is the log's end, None if its last segment is empty: then that begins there. `visible_end` is where consumers
    read to; for others it is the log's end.
    """

    segments: Sequence[Segment]
    starts: Sequence[int]
    end: int | None
    visible_end: int
    now_ms: int


def bounds_of(log: PartitionLog, visible_end: int, now_ms: int) -> SegmentBounds:
    """Return what `offsets_before` needs of a log; on the log's own thread."""
    segments = list(log.segments)
    starts = [max(segment.base_offset, log.log_start_offset) for segment in segments]
    end = log.log_end_offset if log.segments.active.size else None
    return SegmentBounds(segments, starts, end, visible_end, now_ms)


def looks_at_files(timestamp: int) -> bool:
    """Whether `offsets_before` waits for the disk."""
    return timestamp not in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)


def offsets_before(bounds: SegmentBounds, timestamp: int, most: int) -> tuple[int, ...]:
    """Return at most so many offsets that are there since the timestamp (ms, or one that stands for an end).

    The newest comes first. Raises DiskError.
    """
    found = list(bounds.starts)
    if bounds.end is not None:
        found.append(bounds.end)
    if timestamp == EARLIEST_TIMESTAMP:
        del found[1:]
    elif timestamp != LATEST_TIMESTAMP:
        while found and _since_ms(bounds, len(found) - 1) > timestamp:
            found.pop()
    newest_first = sorted(found[max(0, len(found) - max(most, 0)) :], reverse=True)
    seen = [offset for offset in newest_first if offset <= bounds.visible_end]
    hidden = len(seen) < len(newest_first)
    return (bounds.visible_end, *seen) if hidden else tuple(seen)


def _since_ms(bounds: SegmentBounds, number: int) -> int:
    if number == len(bounds.segments):
        return bounds.now_ms
    segment = bounds.segments[number]
    try:
        return segment.disk.status(segment.path(layout.LOG)).mtime_ms
    except FileNotFoundError:
        return bounds.now_ms  # retention has deleted it meanwhile
