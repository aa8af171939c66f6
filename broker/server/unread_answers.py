"""Limits the bytes of answers that peers have not read, over all connections of a broker.

Rule 1: what fits into a transport's buffer (64 KiB a connection) is not counted; the rest is.
Rule 2: beyond `bytes_max` no connection starts a request whose answer may be large; produces, groups and replication
        go on. When others have read, the waiting connections go on in the order in which they came, AT_ONCE_S in a turn
        of the event loop.
Rule 3: meanwhile a connection that reads less than 64 KiB in ten seconds is aborted, so that a few do not block all.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from logyard.broker import tasks

# What waited together has so long; then others have a turn of the event loop.
AT_ONCE_S = 0.01
LOOK_S = 1.0
STALLED_S = 10.0
STALLED_BYTES = 64 * 1024

log = structlog.get_logger("logyard.answers")


class Reader(Protocol):
    """A connection whose peer has not read all its answers."""

    @property
    def bytes_read(self) -> int: ...

    @property
    def peer(self) -> str: ...

    def abort(self) -> None: ...


@dataclass(slots=True)
class _Unread:
    size: int
    read: int
    since: float


class UnreadAnswers:
    """See the head of this file. A negative `bytes_max` means no limit; `monotonic` returns seconds."""

    def __init__(self, bytes_max: int, monotonic: Callable[[], float]) -> None:
        self._bytes_max = bytes_max
        self._monotonic = monotonic
        self._unread: dict[Reader, _Unread] = {}
        self._waiting: dict[Callable[[], None], None] = {}
        self._is_letting_in = False
        self._watch: asyncio.Task[None] | None = None
        self.size = 0
        self.cut_off = 0
        self.sent_from_files = 0  # bytes, since the broker's start
        self.is_full = False  # no request with a large answer may be started

    @property
    def waiting(self) -> int:
        """How many connections wait for others to read."""
        return len(self._waiting)

    def add(self, reader: Reader, size: int) -> None:
        """Count so many bytes that do not fit into the transport's buffer."""
        unread = self._unread.get(reader)
        if unread is None:
            self._unread[reader] = _Unread(size, reader.bytes_read, self._monotonic())
        else:
            unread.size += size
        self._change(size)

    def loading(self, size: int) -> None:
        """Count so many bytes more (or fewer, if negative) of answers that are being read from disks."""
        self._change(size)

    def done(self, reader: Reader) -> None:
        """Count the reader's bytes no more: the peer has read them, or is gone."""
        unread = self._unread.pop(reader, None)
        if unread is not None:
            self._change(-unread.size)

    def wait(self, retry: Callable[[], None]) -> None:
        """Call `retry` once when there is room."""
        self._waiting[retry] = None

    def forget(self, retry: Callable[[], None]) -> None:
        """Do not call `retry`: its connection is gone."""
        self._waiting.pop(retry, None)

    def gauges(self) -> dict[str, int]:
        """Return the figures for /metrics."""
        return {
            "unread_answer_bytes": self.size,
            "connections_waiting_for_room": self.waiting,
            "connections_cut_off_unread": self.cut_off,
            "answer_bytes_sent_from_files": self.sent_from_files,
        }

    def _change(self, size: int) -> None:
        self.size += size
        self.is_full = 0 <= self._bytes_max <= self.size
        if not self.is_full:
            self._let_in()
        elif self._watch is None:
            self._watch = tasks.keep("unread answers", self._abort_stalled)

    def _let_in(self) -> None:
        """Let the waiting connections go on; but not one within another, whose answer has changed the size."""
        if self._waiting and not self._is_letting_in:
            self._is_letting_in = True
            self._let_some_in()

    def _let_some_in(self) -> None:
        until, rests = self._monotonic() + AT_ONCE_S, False
        while self._waiting and not self.is_full and not rests:
            retry = next(iter(self._waiting))
            del self._waiting[retry]
            try:
                retry()
            except Exception as error:  # the others go on: it may be long until any peer reads again
                tasks.failed("a connection that goes on", error)
            rests = self._monotonic() >= until
        self._is_letting_in = rests
        if rests:
            asyncio.get_running_loop().call_soon(self._let_some_in)

    async def _abort_stalled(self) -> None:
        while self.is_full:
            await asyncio.sleep(LOOK_S)
            if self.is_full:
                self._look()
        self._watch = None

    def _look(self) -> None:
        now = self._monotonic()
        for reader, unread in list(self._unread.items()):
            read = reader.bytes_read
            if read - unread.read >= STALLED_BYTES:
                unread.read, unread.since = read, now
            elif now - unread.since >= STALLED_S:
                log.warning("connection cut off, it does not read its answers", peer=reader.peer, unread=unread.size)
                self.cut_off += 1
                self.done(reader)
                reader.abort()
