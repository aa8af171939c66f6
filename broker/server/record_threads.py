"""The threads that look into records: what a client sends may keep one busy for minutes.

Rule 1: so many work at a time, each for some milliseconds; then it is the turn of the one that has waited longest.
Rule 2: what is done for a client that is gone ends, or is not begun.
A client has one request at a time that is looked into: the next one waits for it (connection.py).
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.event_loop import Client

# More would hold up the event loop: all of them want the interpreter.
AT_ONCE = 4
THREADS = 64
TURN_S = 0.02
# As long as there is work between two pauses: a thread that never sleeps is put aside by the machine while it holds the
# interpreter, and the event loop with it.
REST_S = 0.001

T = TypeVar("T")


class RecordThreads:
    """See the head of this file. `submit` is for the event loop; `pause` is what records.pauses calls."""

    def __init__(self, at_once: int = AT_ONCE, threads: int = THREADS, turn_s: float = TURN_S) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="records")
        self._turn_s = turn_s
        self._lock = threading.Lock()
        self._free = at_once
        self._waiting: deque[threading.Event] = deque()
        self._own = threading.local()

    def submit(self, work: Callable[[], T], client: Client | None = None) -> "asyncio.Future[T]":
        """Begin the work in a thread; the future has ApiError where the client was gone before it was begun."""
        return asyncio.get_running_loop().run_in_executor(self._pool, partial(self._run, work, client))

    def pause(self) -> None:
        """Rest, and let another go on where this one has had its turn; raises ApiError if the client is gone."""
        if threading.current_thread() is threading.main_thread():
            return
        time.sleep(REST_S)
        since: float | None = getattr(self._own, "since", None)
        if since is None:
            return  # a thread of the disk's
        _must_be_there(self._own.client)
        if self._waiting and time.monotonic() - since >= self._turn_s:
            self._leave()
            self._enter()

    def close(self) -> None:
        """Begin nothing more; what is being done goes on."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, work: Callable[[], T], client: Client | None) -> T:
        self._enter()
        try:
            _must_be_there(client)
            self._own.client = client
            return work()
        finally:
            self._own.since = self._own.client = None
            self._leave()

    def _enter(self) -> None:
        turn: threading.Event | None = None
        with self._lock:
            if self._free:
                self._free -= 1
            else:
                turn = threading.Event()
                self._waiting.append(turn)
        if turn is not None:
            turn.wait()
        self._own.since = time.monotonic()

    def _leave(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._free += 1


def _must_be_there(client: Client | None) -> None:
    if client is not None and client.is_gone:
        raise ApiError(ErrorCode.NETWORK_EXCEPTION, "the client has gone")
