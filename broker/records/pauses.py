"""Where long work over records pauses: who runs it in a thread says what to do there (`use`)."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from logyard.broker.errors import ApiError, ErrorCode

# About a millisecond of work: records read by C, messages of the old formats read in Python, parts of a request.
RECORDS = 2000
MESSAGES = 200
PARTS = 500

T = TypeVar("T")


def go_on() -> None:
    """The default: do not pause."""


_between: Callable[[], None] = go_on


class PausingList(list[T]):
    """Rests where it has grown by so much, and where so much of it has been walked through."""

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
    """Called about once a millisecond of work."""
    _between()


def use(between: Callable[[], None]) -> None:
    """Have `between` called wherever long work may pause."""
    global _between
    _between = between


def end() -> None:
    """Have all long work end where it would pause: the process is about to, and waits for its threads."""
    use(_stop)


def _stop() -> None:
    raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is stopping")
