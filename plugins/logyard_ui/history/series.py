"""A history as series to plot: rates from counters, and the values of gauges; pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from logyard.plugins.logyard_ui.history.sample import Sample
from logyard.plugins.logyard_ui.history.slots import TIERS

# A group's rate of lag is that of so many seconds.
RECENT_S = 900
# Nothing is drawn between samples that are farther apart than this many times what is usual for their age.
_GAP, _LEAST_MINUTES = 2.5, 6

Point = tuple[int, Sample]
"""A time in seconds since 1970, and what was seen then."""
Values = list[float | None]
Counters = Mapping[tuple[str, ...], tuple[int, float]]
"""By topic, or by group and topic: a counter, and what one of it weighs."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a series is about. `kind`: cluster, topic, group or broker."""

    kind: str
    name: str = ""


def series(points: Sequence[Point], subject: Subject) -> dict[str, Any]:
    """`times`, and by name one value for each of them; None where it is not known. `now`: of a group.

    `bytes_in` and `bytes_out` are records times the mean size of the topic's records on disk.
    """
    name, found = subject.name, {}
    if subject.kind == "broker":
        held = [sample.brokers.get(int(name)) for _, sample in points]
        found = {"bytes": [None if size is None else float(size) for size in held]}
    elif subject.kind == "group":
        found = {
            "records_out": _rates(points, lambda sample: _read(sample, group=name)),
            "lag": [float(sample.groups[name].lag) if name in sample.groups else None for _, sample in points],
        }
    else:
        topic = name if subject.kind == "topic" else None
        found = {
            "records_in": _rates(points, lambda sample: _written(sample, topic)),
            "records_out": _rates(points, lambda sample: _read(sample, topic=topic)),
            "bytes_in": _rates(points, lambda sample: _written(sample, topic, weighed=True)),
            "bytes_out": _rates(points, lambda sample: _read(sample, topic=topic, weighed=True)),
            "lag": [_lag(sample, topic) for _, sample in points],
            "bytes": [_bytes(sample, topic) for _, sample in points],
        }
    now = group_now(points, name) if subject.kind == "group" else None
    return {"times": [time for time, _ in points], "series": found, "now": now}


def _written(sample: Sample, topic: str | None, *, weighed: bool = False) -> Counters:
    topics = {name: point for name, point in sample.topics.items() if topic in (None, name)}
    return {(name,): (point.end, point.record_bytes if weighed else 1.0) for name, point in topics.items()}


def _read(sample: Sample, *, group: str | None = None, topic: str | None = None, weighed: bool = False) -> Counters:
    def weight(name: str) -> float:
        return (sample.topics[name].record_bytes if name in sample.topics else 0.0) if weighed else 1.0

    return {
        (reader, name): (done, weight(name))
        for reader, point in sample.groups.items()
        if group in (None, reader)
        for name, (done, _) in point.topics.items()
        if topic in (None, name)
    }


def _lag(sample: Sample, topic: str | None) -> float | None:
    found = [lag for one in sample.groups.values() for name, (_, lag) in one.topics.items() if topic in (None, name)]
    return float(sum(found)) if found else None


def _bytes(sample: Sample, topic: str | None) -> float | None:
    if topic is None:
        return float(sample.bytes)
    return float(sample.topics[topic].bytes) if topic in sample.topics else None


def _rates(points: Sequence[Point], counters: Callable[[Sample], Counters]) -> Values:
    """Per second, since the sample before: the sum over what both samples have.

    A counter that went back counts as not known: a topic was made anew, or a group's offsets were reset. None where
    nothing is known: for the first sample, after a gap.
    """
    found: Values = []
    before: tuple[int, Counters] | None = None
    for time, sample in points:
        after, rate = counters(sample), None
        if before is not None and 0 < time - before[0] <= _apart_max(points[-1][0] - time):
            grown = [
                (value - before[1][key][0]) * weight
                for key, (value, weight) in after.items()
                if key in before[1] and value >= before[1][key][0]
            ]
            rate = round(sum(grown) / (time - before[0]), 3) if grown else None
        found.append(rate)
        before = (time, after)
    return found


def _apart_max(age_s: int) -> float:
    """How many seconds there may be between samples of that age."""
    width = next((width for back, width in TIERS if age_s < back * 60), TIERS[-1][1])
    return max(width, _LEAST_MINUTES) * 60 * _GAP


def group_now(points: Sequence[Point], group: str) -> dict[str, Any] | None:
    """The group's lag, the records a second by which it grows (below 0: shrinks), the seconds until it is caught up at
    that rate (None: not in sight), and when its commits were last seen to move (None: not in these samples)."""
    mine = [(time, sample.groups[group]) for time, sample in points if group in sample.groups]
    if not mine:
        return None
    end, last = mine[-1]
    first, before = next((time, point) for time, point in mine if end - time <= RECENT_S)
    rate = round((last.lag - before.lag) / (end - first), 3) if end > first else None
    caught_up = 0 if last.lag == 0 else round(last.lag / -rate) if rate is not None and rate < 0 else None
    moved = None
    for (_, earlier), (time, later) in pairwise(mine):
        done = {name: count for name, (count, _) in earlier.topics.items()}
        if done != {name: count for name, (count, _) in later.topics.items()}:
            moved = time
    return {"at_s": end, "lag": last.lag, "lag_rate": rate, "caught_up_s": caught_up, "last_commit_s": moved}
