"""Time as a port: the wall clock, the clock that never goes back, and a clock for tests that is moved by hand."""

import time
from typing import NamedTuple, Protocol


class Clock(Protocol):
    """The time for everything in `broker/`."""

    def now_ms(self) -> int:
        """Return wall-clock milliseconds since 1970 (UTC): for timestamps people and records see."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back: for time-outs and lags."""
        ...


class Now(NamedTuple):
    """What both clocks say: `ms` never goes back and is for time-outs, `wall_ms` is for what is stored and shown."""

    ms: int
    wall_ms: int


def passed_ms(clock: Clock) -> int:
    """Return the time of the clock that never goes back, in whole milliseconds."""
    return int(clock.monotonic() * 1000)


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that stands still until `advance` moves it."""

    def __init__(self, now_ms: int = 1_600_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Move both times forward together."""
        self._now_ms += round(seconds * 1000)
        self._monotonic += seconds

    def set_wall(self, seconds: float) -> None:
        """Move the wall clock forward or back by seconds; the other clock does not change."""
        self._now_ms += round(seconds * 1000)
