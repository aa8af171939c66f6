"""Python's garbage collector during a take-over and during very large requests.

Nearly all objects that a take-over creates stay; searching them for cycles takes up to half of its time at 100,000
partitions, and the first search after it looks at all of them while the broker waits. A large request creates tens of
thousands of objects, and so triggers collections of all the broker's objects: pauses of 60 ms. So only young garbage is
collected meanwhile, and what a large take-over has made is not searched after it either.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

_PATIENT = (50_000, 1000, 1000)


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


def never_search() -> None:
    """Leave out of all searches what is there now."""
    gc.freeze()


@contextmanager
def lasting() -> Iterator[None]:
    """Be patient; if tens of thousands of objects were made and are there still, they are never searched again.

    Like every other object they go when nothing names them. What of the broker's garbage waited for a collection of the
    old stays, too: the young, of which there is more, is collected before.
    """
    gc.collect(1)
    with patient:
        yield
        if gc.get_count()[1] > 0:
            never_search()
