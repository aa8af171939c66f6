"""The pauses in long work on records; the owner of the threads sets what a pause does (`use`)."""

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from logyard.broker.errors import ApiError, ErrorCode

# What takes about a millisecond: records read in C, old messages read in Python, parts of a request.
RECORDS = 2000
MESSAGES = 200
PARTS = 500
# What a batch takes beside its records, in records read in C.
PER_BATCH = 40

T = TypeVar("T")


def go_on() -> None:
    """The default: do not pause."""


_between: Callable[[], None] = go_on
_apart: Callable[[], None] = go_on
_own = threading.local()


class PausingList(list[T]):
    """A list that pauses after each PARTS items that are appended or iterated over."""

    def append(self, item: T) -> None:
        super().append(item)
        if len(self) % PARTS == 0:
            rest()

    def __iter__(self) -> Iterator[T]:
        for number, item in enumerate(super().__iter__(), start=1):
            if number % PARTS == 0:
                rest()
            yield item


def rest() -> None:
    """Pause; call it about once per millisecond of work."""
    _between()


def apart() -> None:
    """Call it after work without the interpreter lock, which nobody had to wait for: there is nothing to rest from."""
    _apart()


def read_in_c(records: int) -> None:
    """Pause if so many records of a batch make up a millisecond's work, together with those since the last pause.

    A log of offsets or transactions has a batch for each record: to pause after each would take fifty times the work.
    """
    done: int = getattr(_own, "done", 0) + PER_BATCH + records
    _own.done = 0 if done >= RECORDS else done
    if done >= RECORDS:
        rest()


def use(between: Callable[[], None], apart: Callable[[], None] = go_on) -> None:
    """Set the functions that are called at each pause, and after work without the interpreter lock."""
    global _between, _apart
    _between, _apart = between, apart


def are_used() -> bool:
    """Whether a pause does something: this process has threads that take turns."""
    return _between is not go_on


def end() -> None:
    """End all long work at its next pause: the process is about to exit, and waits for its threads."""
    use(_stop, _stop)


def _stop() -> None:
    raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is stopping")
