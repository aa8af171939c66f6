"""Which of the oldest segments may go: by age, by size, or because they lie below the log start (facts §13).

Only a prefix of the log ever goes, only below the high watermark, never a segment that a lease holds, and never
an empty active segment.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from logyard.broker.config.topic import TopicConfig
from logyard.broker.log import layout
from logyard.broker.log.segment.segment import Segment


class Candidate(NamedTuple):
    """What retention looks at in a segment; `end_offset` is the next one's base, or the log's end.

    `largest_timestamp` is the file's time of change where no record has a timestamp.
    """

    base_offset: int
    end_offset: int
    size: int
    largest_timestamp: int
    is_active: bool


def candidate(segment: Segment, end_offset: int, *, is_active: bool) -> Candidate:
    """Describe a segment. Looks at the file where no record has a timestamp."""
    latest = segment.max_timestamp
    if latest < 0 and segment.size:
        latest = segment.disk.status(segment.path(layout.LOG)).mtime_ms
    return Candidate(segment.base_offset, end_offset, segment.size, latest, is_active)


def deletable(
    segments: Sequence[Candidate],
    config: TopicConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
    held: Collection[int] = (),
) -> int:
    """Return how many of the oldest segments may go; all of them means that the active one has to be rolled first."""
    rules: list[Callable[[Candidate], bool]] = [
        lambda segment: not segment.is_active and segment.end_offset <= log_start_offset
    ]
    if config.deletes and config.retention_ms >= 0:
        rules.append(lambda segment: now_ms - segment.largest_timestamp > config.retention_ms)
    count = max(_prefix(segments, rule, high_watermark, held) for rule in rules)
    if config.deletes and config.retention_bytes >= 0:
        count = max(count, _prefix(segments, _over_size(segments, config.retention_bytes), high_watermark, held))
    return count


def _over_size(segments: Sequence[Candidate], limit: int) -> Callable[[Candidate], bool]:
    surplus = sum(segment.size for segment in segments) - limit

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
