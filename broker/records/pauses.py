"""Where long work over records pauses: who runs it in a thread says what to do there (`use`)."""

from collections.abc import Callable

from logyard.broker.errors import ApiError, ErrorCode

# About a millisecond of work: records read by C, messages of the old formats read in Python.
RECORDS = 2000
MESSAGES = 200


def _go_on() -> None:
    """Nobody is waiting."""


_between: Callable[[], None] = _go_on


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
