"""Python's garbage collector during a take-over and during very large requests.

Nearly all objects that a take-over creates stay; searching them for cycles takes up to half of its time at 100,000
partitions. A large request creates tens of thousands of objects, and so triggers collections of all the broker's
objects: pauses of 60 ms. So full collections become rare meanwhile; young garbage is still collected.
"""

import gc
from types import TracebackType

_PATIENT = (50_000, 50, 1000)


class _PatientCollector:
    """A re-entrant context (in tests several controllers share one process)."""

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
