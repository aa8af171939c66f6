"""The filters of a query that the plan can use, to skip partitions, offsets and times. Pure.

Filters on topic, partition and offset are applied completely. A filter on timestamp skips only records that are
certainly older, by the time index and the headers of batches, so Spark checks it again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from logyard.broker.model import TopicPartition
from logyard.spark_jobs.segments.indexes import byte_window, may_hold_time, older_until
from logyard.spark_jobs.segments.splits import Range, Split

NO_END = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


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


def take(filters: Iterable[Filter]) -> tuple[Bounds, list[Filter]]:
    """Return the bounds that hold all usable filters, and the filters that still have to be checked."""
    bounds, left = Bounds(), []
    for one in filters:
        column = one.attribute[0] if len(getattr(one, "attribute", ())) == 1 else ""
        if column == "timestamp":
            bounds = _by_time(bounds, one)
            left.append(one)
            continue
        narrowed = {"topic": _by_topic, "partition": _by_partition, "offset": _by_offset}.get(column, _not_ours)(
            bounds, one
        )
        if narrowed is None:
            left.append(one)
        else:
            bounds = narrowed
    return bounds, left


def _not_ours(bounds: Bounds, one: Any) -> Bounds | None:
    return None


def _values(one: Any) -> frozenset[Any] | None:
    if isinstance(one, EqualTo):
        return frozenset([one.value])
    return frozenset(one.value) if isinstance(one, In) else None


def _by_topic(bounds: Bounds, one: Any) -> Bounds | None:
    values = _values(one)
    if values is None:
        return None
    return replace(bounds, topics=values if bounds.topics is None else bounds.topics & values)


def _by_partition(bounds: Bounds, one: Any) -> Bounds | None:
    values = _values(one)
    if values is None:
        return None
    return replace(bounds, partitions=values if bounds.partitions is None else bounds.partitions & values)


def _by_offset(bounds: Bounds, one: Any) -> Bounds | None:
    if isinstance(one, EqualTo):
        start, end = one.value, one.value + 1
    elif isinstance(one, GreaterThan):
        start, end = one.value + 1, NO_END
    elif isinstance(one, GreaterThanOrEqual):
        start, end = one.value, NO_END
    elif isinstance(one, LessThan):
        start, end = 0, one.value
    elif isinstance(one, LessThanOrEqual):
        start, end = 0, one.value + 1
    else:
        return None
    return replace(bounds, start=max(bounds.start, start), end=min(bounds.end, end))


def _by_time(bounds: Bounds, one: Any) -> Bounds:
    newer = isinstance(one, (EqualTo, GreaterThan, GreaterThanOrEqual))
    if not newer or not isinstance(one.value, datetime):
        return bounds
    from_ms = (one.value.astimezone(timezone.utc) - _EPOCH) // timedelta(
        milliseconds=1
    )  # rounded down: Spark checks again
    return replace(bounds, newer_ms=from_ms if bounds.newer_ms is None else max(bounds.newer_ms, from_ms))
