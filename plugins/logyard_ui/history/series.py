"""A history as series to plot: rates from counters, and the values of gauges; pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from logyard.admin.cluster.snapshot import DirectorySpace
from logyard.admin.reassignment.space import volumes
from logyard.plugins.logyard_ui.history.sample import ALL, GroupPoint, Only, Sample
from logyard.plugins.logyard_ui.history.slots import TIERS

# A group's rate of lag is that of so many seconds.
RECENT_S = 900
# Nothing is drawn between samples that are farther apart than this many times what is usual for their age.
_GAP, _LEAST_MINUTES = 2.5, 6

Point = tuple[int, Sample]
"""A time in seconds since 1970, and what was seen then."""
Values = list[float | None]
Value = Callable[[int, Sample], float | None]
"""The value of the next point, by its time and sample."""
Counters = Mapping[tuple[str, ...], tuple[int, float]]
"""By topic, or by group and topic: a counter, and what one of it weighs."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a series is about. `kind`: cluster, topic, group or broker."""

    kind: str
    name: str = ""

    @property
    def only(self) -> Only:
        """What of samples it is made from."""
        if self.kind == "broker":
            return Only(topic="", group="")
        if self.kind == "group":
            return Only(topic="", group=self.name)
        return Only(topic=self.name, reads=self.name) if self.kind == "topic" else ALL


def series(points: Iterable[Point], subject: Subject, end_s: int, apart_s: int = 0) -> dict[str, Any]:
    """`times`, and by name one value for each of them; None where it is not known. `now`: of a group.

    `bytes_in` and `bytes_out` are records times the mean size of the topic's records on disk. Of the points no more
    than two are held.

    :param end_s: the time to which the series goes: samples are the farther apart, the older they are.
    :param apart_s: how far apart the points were chosen, beside that.
    """
    parts = _parts(subject, end_s, apart_s)
    times: list[int] = []
    found: dict[str, Values] = {name: [] for name in parts}
    mine: list[tuple[int, GroupPoint]] = []
    before: Sample | None = None
    for time, sample in points:
        times.append(time)
        if before is not None and not sample.is_of(before):
            mine.clear()  # a group of that name in another cluster
        before = sample
        for name, value in parts.items():
            found[name].append(value(time, sample))
        if subject.kind == "group" and subject.name in sample.groups:
            mine.append((time, sample.groups[subject.name]))
    return {"times": times, "series": found, "now": group_now(mine)}


def _parts(subject: Subject, end_s: int, apart_s: int) -> dict[str, Value]:
    """By its name, what tells one value of a series after the other."""

    def rate(counters: Callable[[Sample], Counters]) -> Value:
        return _Rate(counters, end_s, apart_s)

    name = subject.name
    if subject.kind == "broker":
        return {
            "bytes": lambda _, sample: _float(sample.brokers.get(int(name))),
            "disk_used": lambda _, sample: _float(disk[0] - disk[1] if (disk := _disk(sample, int(name))) else None),
            "disk_total": lambda _, sample: _float(disk[0] if (disk := _disk(sample, int(name))) else None),
        }
    if subject.kind == "group":
        return {
            "records_out": rate(lambda sample: _read(sample, group=name)),
            "lag": lambda _, sample: _float(sample.groups[name].lag if name in sample.groups else None),
        }
    topic = name if subject.kind == "topic" else None
    return {
        "records_in": rate(lambda sample: _written(sample, topic)),
        "records_out": rate(lambda sample: _read(sample, topic=topic)),
        "bytes_in": rate(lambda sample: _written(sample, topic, weighed=True)),
        "bytes_out": rate(lambda sample: _read(sample, topic=topic, weighed=True)),
        "lag": lambda _, sample: _lag(sample, topic),
        "bytes": lambda _, sample: _bytes(sample, topic),
    }


def _float(number: int | None) -> float | None:
    return None if number is None else float(number)


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


def _disk(sample: Sample, broker: int) -> tuple[int, int] | None:
    """Total and usable bytes of a broker's volumes."""
    known = volumes(DirectorySpace(broker, path, *pair) for path, pair in sample.disks.get(broker, {}).items())
    return (sum(total for total, _ in known), sum(usable for _, usable in known)) if known else None


def _lag(sample: Sample, topic: str | None) -> float | None:
    found = [lag for one in sample.groups.values() for name, (_, lag) in one.topics.items() if topic in (None, name)]
    return float(sum(found)) if found else None


def _bytes(sample: Sample, topic: str | None) -> float | None:
    if topic is None:
        return float(sample.bytes)
    return float(sample.topics[topic].bytes) if topic in sample.topics else None


class _Rate:
    """Per second, since the sample before: the sum over what both samples have.

    A counter that went back counts as not known: a topic was made anew, or a group's offsets were reset. None where
    nothing is known: for the first sample, after a gap, where the connection leads to another cluster.
    """

    def __init__(self, counters: Callable[[Sample], Counters], end_s: int, apart_s: int) -> None:
        self._counters, self._end_s, self._apart_s = counters, end_s, apart_s
        self._before: tuple[int, Sample, Counters] | None = None

    def __call__(self, time: int, sample: Sample) -> float | None:
        before, after = self._before, self._counters(sample)
        self._before = (time, sample, after)
        if before is None or not sample.is_of(before[1]) or not 0 < time - before[0] <= self._apart_max(before[0]):
            return None
        grown = [
            (value - before[2][key][0]) * weight
            for key, (value, weight) in after.items()
            if key in before[2] and value >= before[2][key][0]
        ]
        return round(sum(grown) / (time - before[0]), 3) if grown else None

    def _apart_max(self, time: int) -> float:
        """For the time of the earlier of two samples: at the border of two tiers they are apart as in its tier."""
        return max(_apart_max(self._end_s - time), self._apart_s * _GAP)


def _apart_max(age_s: int) -> float:
    """How many seconds there may be between samples of that age."""
    width = next((width for back, width in TIERS if age_s < back * 60), TIERS[-1][1])
    return max(width, _LEAST_MINUTES) * 60 * _GAP


def group_now(mine: Sequence[tuple[int, GroupPoint]]) -> dict[str, Any] | None:
    """The group's lag, the records a second by which it grows (below 0: shrinks), the seconds until it is caught up at
    that rate (None: not in sight), and when its commits were last seen to move (None: not in these samples)."""
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
