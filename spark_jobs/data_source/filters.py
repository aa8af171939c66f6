"""The filters of a query that the plan can use, to skip partitions, offsets and times. Pure.

Filters on topic, partition and offset are applied completely. A filter on timestamp skips only records that are
certainly older, by the time index and the headers of batches, so Spark checks it again. PySpark pushes filters down
since 4.1, so this module is imported when it does.
"""

from collections.abc import Iterable
from dataclasses import replace
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

from logyard.spark_jobs.data_source.bounds import NO_END, Bounds

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


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
