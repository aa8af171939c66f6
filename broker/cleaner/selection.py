"""Which log is cleaned next: the dirtiest one above its ratio, or one whose records have waited too long.

The choice is that of Kafka's LogCleanerManager.grabFilthiestCompactedLog (facts §13, KIP-354). Logs of internal topics
come first, because a coordinator that takes over has to read them whole.
"""

from collections.abc import Iterable
from typing import NamedTuple

from logyard.broker.compaction.ranges import dirty_ratio, is_due
from logyard.broker.leases.cleanable import closed_segments
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.model import INTERNAL_TOPICS, TopicPartition


class Candidate(NamedTuple):
    """A log that may be cleaned from `clean_offset` to below `end_offset`; `ratio` is the dirty share, 0 to 1."""

    tp: TopicPartition
    clean_offset: int
    end_offset: int
    ratio: float
    is_due: bool

    @property
    def urgency(self) -> tuple[bool, float]:
        return self.tp.topic in INTERNAL_TOPICS, self.ratio


def judge(log: PartitionLog, clean_offset: int, end_offset: int, first_dirty_at_ms: int, now_ms: int) -> Candidate:
    """Return how dirty a log is; `first_dirty_at_ms` is the time of its first dirty batch, -1 if it does not matter."""
    ratio = dirty_ratio(closed_segments(log), clean_offset, end_offset)
    due = is_due(
        ratio,
        min_ratio=log.config.min_cleanable_dirty_ratio,
        first_dirty_at_ms=first_dirty_at_ms,
        max_lag_ms=log.config.max_compaction_lag_ms,
        now_ms=now_ms,
        end_offset=end_offset,
        clean_offset=clean_offset,
    )
    return Candidate(log.tp, clean_offset, end_offset, ratio, due)


def next_to_clean(candidates: Iterable[Candidate]) -> Candidate | None:
    """Return the candidate to be cleaned next, None if none is due."""
    return max((c for c in candidates if c.is_due), key=lambda c: c.urgency, default=None)
