"""A clock for an event loop that does not count when the machine does something else.

Where a test and what it tests share one loop, their timers are then due one after the other, as on a machine that has
nothing else to do: after half a second in which nobody ran, a test's `sleep(0.02)` and a timer of 0.1 s would be due at
once. What counts is how long the loop waits, as long as it meant to, and the CPU time of its thread. What threads and
other processes do in between is not made faster by it.
"""

import asyncio
import time
from typing import Any


class _SteadyClock:
    """Stands between a loop and its selector."""

    def __init__(self, selector: Any) -> None:
        self._selector = selector
        self._waited_s = 0.0
        self._start = time.monotonic() - time.thread_time()

    def time(self) -> float:
        return self._start + self._waited_s + time.thread_time()

    def select(self, timeout: float | None = None) -> Any:
        begun = time.monotonic()
        found = self._selector.select(timeout)
        waited = time.monotonic() - begun
        self._waited_s += waited if timeout is None else min(waited, max(timeout, 0.0))
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)


def steady(loop: asyncio.AbstractEventLoop) -> None:
    """Give the loop, one of asyncio's own, such a clock."""
    made: Any = loop
    if not isinstance(made._selector, _SteadyClock):
        clock = _SteadyClock(made._selector)
        made._selector, made.time = clock, clock.time
