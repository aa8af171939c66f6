"""Which log is cleaned next: the dirtiest one over its ratio, or one whose records waited too long.

As Kafka's LogCleanerManager.grabFilthiestCompactedLog chooses (facts §13, KIP-354); the logs of internal topics come
first, since what a coordinator must read to take over grows with them.
"""

from collections.abc import Iterable
from typing import NamedTuple

from logyard.broker.compaction.ranges import dirty_ratio, is_due
from logyard.broker.leases.cleanable import closed_segments
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.model import INTERNAL_TOPICS, TopicPartition


class Candidate(NamedTuple):
    """A log that may be cleaned from `clean_offset` to below `end_offset`; `ratio` is its dirty part."""

    tp: TopicPartition
    clean_offset: int
    end_offset: int
    ratio: float
    is_due: bool

    @property
    def urgency(self) -> tuple[bool, float]:
        return self.tp.topic in INTERNAL_TOPICS, self.ratio


def judge(log: PartitionLog, clean_offset: int, end_offset: int, first_dirty_at_ms: int, now_ms: int) -> Candidate:
    """Say how dirty a log is; `first_dirty_at_ms` is the time of its first dirty batch, -1 where it does not matter."""
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


def filthiest(candidates: Iterable[Candidate]) -> Candidate | None:
    """Return the one to be cleaned next, None where none is due."""
    return max((c for c in candidates if c.is_due), key=lambda c: c.urgency, default=None)
