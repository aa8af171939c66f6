"""Which of the oldest segments to delete: by age, by size, or because they lie below the log start (facts §13).

Only a prefix of the log is deleted, only below the high watermark, never a segment that a lease holds, and never an
empty active segment.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from logyard.broker.config.topic import TopicConfig
from logyard.broker.log import layout
from logyard.broker.log.partition_log import PartitionLog


def delete_old_segments(log: PartitionLog, now_ms: int, at_most: int | None = None) -> int:
    """Delete the oldest segments as the topic's retention demands; returns how many.

    Each takes five renames, so `at_most` limits one call, which then looks at no more. Reads the modification time of
    files without timestamps.
    """
    log.check_usable()
    log.now_ms = now_ms
    looked_at = len(log.segments) if at_most is None else min(at_most, len(log.segments))
    count = deletable(
        [candidate_of(log, number) for number in range(looked_at)],
        log.config,
        size=log.size,
        now_ms=now_ms,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        held=log.segments.held,
    )
    if count == len(log.segments) and log.pending_reload is not None:
        count -= 1  # what a roll writes is being read in a thread: the next run goes on
    elif count == len(log.segments):
        log.roll(log.log_end_offset, now_ms)
    if count:
        log.drop_oldest(count)
    return count


class Candidate(NamedTuple):
    """What retention needs to know of a segment; `end_offset` is the next one's base, or the log's end.

    `largest_timestamp` is the file's modification time if no record has a timestamp.
    """

    base_offset: int
    end_offset: int
    size: int
    largest_timestamp: int
    is_active: bool


def candidate_of(log: PartitionLog, number: int) -> Candidate:
    """Return what retention needs to know of the log's segment of that number."""
    segment = log.segments[number]
    latest = segment.max_timestamp
    if latest < 0 and segment.size:
        latest = segment.disk.status(segment.path(layout.LOG)).mtime_ms
    return Candidate(segment.base_offset, log.end_of(number), segment.size, latest, segment is log.segments.active)


def deletable(
    segments: Sequence[Candidate],
    config: TopicConfig,
    *,
    size: int,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
    held: Collection[int] = (),
) -> int:
    """Return how many of the oldest segments may be deleted; if all, the active one has to be rolled first.

    `segments` are the oldest ones, `size` is that of all.
    """
    rules: list[Callable[[Candidate], bool]] = [
        lambda segment: not segment.is_active and segment.end_offset <= log_start_offset
    ]
    if config.deletes and config.retention_ms >= 0:
        rules.append(lambda segment: now_ms - segment.largest_timestamp > config.retention_ms)
    count = max(_prefix(segments, rule, high_watermark, held) for rule in rules)
    if config.deletes and config.retention_bytes >= 0:
        count = max(count, _prefix(segments, _over_size(size - config.retention_bytes), high_watermark, held))
    return count


def _over_size(surplus: int) -> Callable[[Candidate], bool]:
    def rule(segment: Candidate) -> bool:
        nonlocal surplus
        if surplus - segment.size < 0:
            return False
        surplus -= segment.size
        return True

    return rule


def _prefix(
    segments: Sequence[Candidate], rule: Callable[[Candidate], bool], high_watermark: int, held: Collection[int]
) -> int:
    count = 0
    for segment in segments:
        empty_active = segment.is_active and segment.size == 0
        if empty_active or segment.end_offset > high_watermark or segment.base_offset in held or not rule(segment):
            break
        count += 1
    return count
