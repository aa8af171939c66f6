"""Python's garbage collector while a controller loads everything there is, or a very large request is worked on.

Nearly all objects that a take-over makes stay: searching them for cycles takes up to half of the time at 100,000
partitions. A request of many parts makes tens of thousands of objects, and has the collector look through all
the broker has: a pause of 60 ms. So full collections become rare meanwhile; young garbage is still collected.
"""

import gc
from types import TracebackType

_PATIENT = (50_000, 50, 1000)


class _PatientCollector:
    """A context that may be entered again before it is left (several controllers in one process, in tests)."""

    def __init__(self) -> None:
        self._depth = 0
        self._before = gc.get_threshold()

    def __enter__(self) -> None:
        if self._depth == 0:
            self._before = gc.get_threshold()
            gc.set_threshold(*_PATIENT)
        self._depth += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._depth -= 1
        if self._depth == 0:
            gc.set_threshold(*self._before)


patient = _PatientCollector()
