"""When a process loads its compiled loops over records (broker/compiled): when it first meets many at once.

The process says how they are loaded (`load_by`). Until they are, and where numba is not installed, records are read in
C and Python. What each loop does is in `compiled_look.py` and `downconvert.py`, which are told when it is there.
"""

from collections.abc import Callable

from logyard.broker.records import compiled_look

_load: Callable[[], object] | None = None


def load_by(load: Callable[[], object] | None) -> None:
    """Call `load` once, on the event loop, when loops are wanted; it has them used later, or not at all."""
    global _load
    _load = load


def want() -> None:
    """Begin to load the loops, unless they are there or have been asked for. Call it on the event loop, where a large
    batch is met, or much that is to be converted."""
    global _load
    if _load is not None and not compiled_look.is_loaded():  # which is told last
        load, _load = _load, None
        load()
