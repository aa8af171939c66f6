"""What a query wants of the records, as far as a plan can use it: topics, partitions, offsets, times. Pure."""

from dataclasses import dataclass, replace

from logyard.broker.model import TopicPartition
from logyard.spark_jobs.segments.indexes import byte_window, may_hold_time, older_until
from logyard.spark_jobs.segments.splits import Range, Split

NO_END = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a query wants: topics and partition numbers (None: all), offsets [start, end), times from `newer_ms` on."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start: int = 0
    end: int = NO_END
    newer_ms: int | None = None

    def allow(self, tp: TopicPartition) -> bool:
        wanted_topic = self.topics is None or tp.topic in self.topics
        return wanted_topic and (self.partitions is None or tp.partition in self.partitions)

    def clip(self, span: Range) -> Range:
        start = max(span.start, self.start)
        return replace(span, start=start, end=max(start, min(span.end, self.end)))

    def narrow(self, split: Split) -> Split | None:
        """Return the part of a split that may hold wanted records, None if there is none."""
        if self.newer_ms is None:
            return split
        segment = split.segment
        start = max(split.start, older_until(segment, self.newer_ms))
        if start >= split.end or not may_hold_time(segment, self.newer_ms):
            return None
        position = max(split.position, byte_window(segment, start, split.end)[0])
        return replace(split, start=start, position=position, newer_ms=self.newer_ms)
