"""The part of a log that may be cleaned, whether it is worth it, and which segments are merged.

Sources: facts §13 (cleaner), KIP-58 (min.compaction.lag.ms), KIP-354 (max.compaction.lag.ms), docs/leases.md
(`end_offset`).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

OFFSET_SPAN_MAX = 2**31 - 1


class SegmentRange(NamedTuple):
    """A closed segment as a cleaner sees it: offsets, bytes, the largest timestamp in ms (-1: none)."""

    base_offset: int
    last_offset: int
    size: int
    max_timestamp: int = -1
    index_size: int = 0


def cleanable_end(
    segments: Iterable[SegmentRange],
    *,
    active_base: int,
    last_stable_offset: int,
    high_watermark: int,
    clean_offset: int,
    log_start_offset: int,
    now_ms: int,
    min_lag_ms: int,
) -> int:
    """Return the offset below which records may be cleaned.

    Excluded are the active segment, open transactions, everything above the high watermark, and everything from the
    first dirty segment on that has a record younger than `min_lag_ms`. Never below the log's start.

    :param segments: closed segments, ascending; only read if `min_lag_ms` > 0.
    """
    end = min(active_base, last_stable_offset, high_watermark)
    if min_lag_ms > 0:
        youngest_allowed = now_ms - min_lag_ms
        young = (
            s.base_offset for s in segments if s.last_offset >= clean_offset and s.max_timestamp > youngest_allowed
        )
        end = min(end, next(young, end))
    return max(end, log_start_offset)


def dirty_ratio(segments: Iterable[SegmentRange], clean_offset: int, end_offset: int) -> float:
    """Return dirty bytes over all cleanable bytes, by whole segments (a segment that contains `clean_offset` is
    dirty)."""
    clean = dirty = 0
    for segment in segments:
        if segment.base_offset >= end_offset:
            continue
        if segment.last_offset < clean_offset:
            clean += segment.size
        else:
            dirty += segment.size
    return dirty / (clean + dirty) if clean + dirty else 0.0


def is_due(
    ratio: float,
    *,
    min_ratio: float,
    first_dirty_at_ms: int,
    max_lag_ms: int,
    now_ms: int,
    end_offset: int,
    clean_offset: int,
) -> bool:
    """Return whether a log is worth cleaning: dirty enough, or its first dirty record is older than `max_lag_ms`."""
    if end_offset <= clean_offset:
        return False
    overdue = 0 < first_dirty_at_ms < now_ms - max_lag_ms
    return ratio > min_ratio or overdue


def group_segments(
    segments: Sequence[SegmentRange], *, segment_bytes: int, index_bytes: int = 10 * 1024 * 1024
) -> list[list[SegmentRange]]:
    """Cut adjacent segments into the groups that each become one segment.

    The old sizes of a group fit `segment_bytes` and `index_bytes`, and its offsets an index (int32).
    """
    groups: list[list[SegmentRange]] = []
    size = index_size = 0
    for segment in segments:
        fits = (
            bool(groups)
            and size + segment.size <= segment_bytes
            and index_size + segment.index_size <= index_bytes
            and segment.last_offset - groups[-1][0].base_offset <= OFFSET_SPAN_MAX
        )
        if fits:
            groups[-1].append(segment)
            size += segment.size
            index_size += segment.index_size
        else:
            groups.append([segment])
            size, index_size = segment.size, segment.index_size
    return groups
