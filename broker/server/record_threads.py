"""The threads that read records; what one client has sent may keep a thread busy for minutes.

Rule 1: AT_ONCE threads run at a time, each for TURN_S; then the one that has waited longest runs.
Rule 2: work for a client that is gone is stopped, or not begun.
A client has work for one request at a time: its next request waits (connection.py).
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

# More would delay the event loop: all of them need the interpreter.
AT_ONCE = 4
THREADS = 64
TURN_S = 0.02
# As long as the work between two pauses. If a thread never slept, the kernel would preempt it while it holds the
# interpreter, and the event loop would wait for it.
REST_S = 0.001
# Less work than this since its last rest, and a thread works on: each of many small batches has a pause of its own.
WORK_S = 0.0005

T = TypeVar("T")


class RecordThreads:
    """See the head of this file. The event loop calls `submit`; the work itself calls `pause` (records.pauses)."""

    def __init__(self, at_once: int = AT_ONCE, threads: int = THREADS, turn_s: float = TURN_S) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="records")
        self._turn_s = turn_s
        self._lock = threading.Lock()
        self._free = at_once
        self._waiting: deque[threading.Event] = deque()
        self._own = threading.local()

    def submit(self, work: Callable[[], T], client: Client | None = None) -> "asyncio.Future[T]":
        """Begin the work in a thread. The future has ApiError (NETWORK_EXCEPTION) if the client is gone before."""
        return asyncio.get_running_loop().run_in_executor(self._pool, partial(self._run, work, client))

    def pause(self) -> None:
        """Sleep REST_S after WORK_S of work or more, and let another thread run if this one's turn is over.

        Raises ApiError: NETWORK_EXCEPTION (the client is gone).
        """
        if threading.current_thread() is threading.main_thread():
            return
        own = self._own
        since: float | None = getattr(own, "since", None)
        if since is not None:
            _check_connected(own.client)
        if time.monotonic() - getattr(own, "rested", 0.0) < WORK_S:
            return
        time.sleep(REST_S)
        self.worked_apart()

    def worked_apart(self) -> None:
        """Go on without a rest, after work without the interpreter lock; but let another thread run in its turn.

        Raises ApiError: NETWORK_EXCEPTION (the client is gone).
        """
        own = self._own
        own.rested = time.monotonic()
        since: float | None = getattr(own, "since", None)
        if since is None:
            return  # a thread of the disk's pool, or the event loop
        _check_connected(own.client)
        if self._waiting and own.rested - since >= self._turn_s:
            self._leave()
            self._enter()

    def close(self) -> None:
        """Begin no more work; work that was begun goes on."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, work: Callable[[], T], client: Client | None) -> T:
        self._enter()
        try:
            _check_connected(client)
            self._own.client = client
            return work()
        finally:
            self._own.since = self._own.client = None
            self._own.ended = time.monotonic()
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
        own = self._own
        own.since = time.monotonic()
        if own.since - getattr(own, "ended", 0.0) >= REST_S:
            own.rested = own.since  # it had nothing to do for as long as a rest

    def _leave(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._free += 1


def _check_connected(client: Client | None) -> None:
    if client is not None and client.is_gone:
        raise ApiError(ErrorCode.NETWORK_EXCEPTION, "the client is gone")
