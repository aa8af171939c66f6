"""The clocks: a port, the machine's clock, and a clock that tests move."""

import time
from typing import NamedTuple, Protocol


class Clock(Protocol):
    """The time for all of `broker/`."""

    def now_ms(self) -> int:
        """Return wall-clock milliseconds since 1970 (UTC), for timestamps of records and for people."""
        ...

    def monotonic(self) -> float:
        """Return seconds of a monotonic clock, for time-outs and lags."""
        ...


class Now(NamedTuple):
    """What both clocks say: `ms` never goes back and is for time-outs, `wall_ms` is for what is stored and shown."""

    ms: int
    wall_ms: int


def passed_ms(clock: Clock) -> int:
    """Return the monotonic clock's time in whole milliseconds."""
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
        """Move both clocks forward."""
        self._now_ms += round(seconds * 1000)
        self._monotonic += seconds

    def set_wall(self, seconds: float) -> None:
        """Move the wall clock forward or back by `seconds`; the monotonic clock does not change."""
        self._now_ms += round(seconds * 1000)
