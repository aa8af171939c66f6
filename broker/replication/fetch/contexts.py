"""A Fetch request as its session resolves it: what to read for it, and what to send of that."""

from collections.abc import Callable
from typing import Protocol

from logyard.broker.errors import ErrorCode
from logyard.broker.replication.events import FetchedPartition
from logyard.broker.replication.fetch.fetch import FetchSource, Sessionless

NO_SESSION = 0


class FetchContext(Protocol):
    """One resolved fetch request: read from `source`, then `finish` returns what to send.

    `postpone`, instead of `finish`, returns the error and session id of an answer without partitions, if a quota delays
    the client. With an `error` there is nothing to read: answer it alone.
    """

    @property
    def error(self) -> ErrorCode: ...
    @property
    def source(self) -> FetchSource: ...
    def finish(self, answers: list[FetchedPartition]) -> tuple[ErrorCode, int, list[FetchedPartition]]: ...
    def postpone(self) -> tuple[ErrorCode, int]: ...


class Refused:
    """A request whose session is another than it says."""

    __slots__ = ("error",)

    source = Sessionless(())

    def __init__(self, error: ErrorCode) -> None:
        self.error = error

    def finish(self, answers: list[FetchedPartition]) -> tuple[ErrorCode, int, list[FetchedPartition]]:
        return self.error, NO_SESSION, []

    def postpone(self) -> tuple[ErrorCode, int]:
        return self.error, NO_SESSION


class Full:
    """A request that names all its partitions; `opens` makes the session that it asks for, None: it asks for none."""

    __slots__ = ("_opens", "source")

    error = ErrorCode.NONE

    def __init__(self, source: Sessionless, opens: Callable[[list[FetchedPartition]], int] | None) -> None:
        self.source = source
        self._opens = opens

    def finish(self, answers: list[FetchedPartition]) -> tuple[ErrorCode, int, list[FetchedPartition]]:
        return ErrorCode.NONE, NO_SESSION if self._opens is None else self._opens(answers), answers

    def postpone(self) -> tuple[ErrorCode, int]:
        return ErrorCode.NONE, NO_SESSION
