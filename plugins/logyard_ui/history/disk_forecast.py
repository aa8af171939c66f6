"""When a directory will be full: a straight line through what was used in the kept history; pure."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from logyard.plugins.logyard_ui.history.sample import Sample

GROWS, STEADY, TOO_LITTLE = "grows", "steady", "too little"
# A line needs so many points, over so many seconds; and nothing is said of what lies farther ahead.
POINTS_MIN, SPAN_MIN_S, AHEAD_MAX_S = 6, 3_600, 10 * 365 * 86_400
DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class DiskForecast:
    """One directory of a broker. `total`, `free`: bytes when it was last seen; `span_s`: how long it was seen.

    `state`: GROWS, STEADY (it does not grow, or is full in more than ten years), TOO_LITTLE (history to say).
    `per_day`: bytes that are used more each day; `full_in_s`: seconds from the last sample until nothing is free.
    """

    broker: int
    path: str
    total: int
    free: int
    state: str
    span_s: int
    per_day: int | None = None
    full_in_s: int | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def forecasts(points: Sequence[tuple[int, Sample]]) -> list[DiskForecast]:
    """Every directory of the last sample, by broker and path. Times are seconds since 1970, in order."""
    if not points:
        return []
    last = points[-1][1]
    return [
        _forecast(broker, path, points)
        for broker, directories in sorted(last.disks.items())
        for path in sorted(directories)
    ]


def _forecast(broker: int, path: str, points: Sequence[tuple[int, Sample]]) -> DiskForecast:
    total, free = points[-1][1].disks[broker][path]
    used: list[tuple[int, int]] = []
    for time, sample in points:
        seen = sample.disks.get(broker, {}).get(path)
        if seen is None:
            continue
        if seen[0] != total or not sample.is_of(points[-1][1]):
            used = []  # another disk, another size of it, or another cluster's
        else:
            used.append((time, seen[0] - seen[1]))
    span = used[-1][0] - used[0][0]
    if len(used) < POINTS_MIN or span < SPAN_MIN_S:
        return DiskForecast(broker, path, total, free, TOO_LITTLE, span)
    rate = _slope(used)
    per_day = round(rate * DAY_S)
    if rate <= 0 or free / rate > AHEAD_MAX_S:
        return DiskForecast(broker, path, total, free, STEADY, span, per_day)
    return DiskForecast(broker, path, total, free, GROWS, span, per_day, round(free / rate))


def _slope(points: Iterable[tuple[int, int]]) -> float:
    """Of the line with the least squares, in bytes a second."""
    pairs = list(points)
    first, count = pairs[0][0], len(pairs)
    mean_x = sum(time - first for time, _ in pairs) / count
    mean_y = sum(used for _, used in pairs) / count
    spread = sum((time - first - mean_x) ** 2 for time, _ in pairs)
    return sum((time - first - mean_x) * (used - mean_y) for time, used in pairs) / spread
