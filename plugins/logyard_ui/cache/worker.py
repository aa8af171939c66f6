"""A thread with a client of its own that reads one cluster; both end soon after the last read."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from logyard.admin.errors import ApiError, LogyardError
from logyard.admin.ports import DescribingClient

IDLE_S = 60.0
QUEUE_MAX = 16

log = logging.getLogger(__name__)

Read = Callable[[DescribingClient], Any]


class Busy(LogyardError):
    """Too many reads are queued for one cluster already."""


class Worker:
    """Runs reads one after the other. A client must not be shared by threads, so each worker has its own.

    `on_idle` is called by the thread when it ends.
    """

    def __init__(
        self, connect: Callable[[], DescribingClient], on_idle: Callable[[], None], idle_s: float = IDLE_S
    ) -> None:
        self._connect, self._on_idle, self._idle_s = connect, on_idle, idle_s
        self._condition = threading.Condition()
        self._queue: deque[tuple[Read, Future[Any]]] = deque()
        self._thread: threading.Thread | None = None
        self._client: DescribingClient | None = None
        self._closed = False
        self._is_wanted = False  # somebody waits for the read that runs, or for one in the queue

    @property
    def thread(self) -> threading.Thread | None:
        return self._thread

    def submit(self, read: Read) -> "Future[Any]":
        """Queue a read; the future gets its result or its exception. Raises Busy."""
        future: Future[Any] = Future()
        # One caller may give up waiting, but others may want the result: the future is running from the start, so
        # nobody can cancel it.
        future.set_running_or_notify_cancel()
        with self._condition:
            if self._closed or len(self._queue) >= QUEUE_MAX:
                raise Busy("too many requests for this cluster at once: try again in a moment")
            self._queue.append((read, future))
            if self._thread is None:
                # A daemon, so that a broker that does not answer cannot delay the end of Airflow's server.
                thread = threading.Thread(target=self._work, name="logyard-page", daemon=True)
                thread.start()
                self._thread = thread
            self._condition.notify()
        return future

    def hurry(self) -> None:
        """Somebody waits for a read: the one that runs lingers no longer."""
        with self._condition:
            self._is_wanted = True
            self._condition.notify()

    def linger(self, seconds: float) -> None:
        """For a read that nobody waits for: begin it so much later, or as soon as somebody waits for any read."""
        with self._condition:
            self._condition.wait_for(lambda: self._queue or self._is_wanted or self._closed, seconds)

    def close(self) -> None:
        """Refuse further reads; those in the queue still run."""
        with self._condition:
            self._closed = True
            self._condition.notify()

    def _work(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._queue or self._closed, self._idle_s)
                if not self._queue:
                    # Decided under the lock: a read that is submitted from now on starts another thread.
                    self._thread = None
                    client, self._client = self._client, None
                    break
                read, future = self._queue.popleft()
            self._run(read, future)
        _close(client)
        self._on_idle()

    def _run(self, read: Read, future: "Future[Any]") -> None:
        try:
            if self._client is None:
                self._client = self._connect()
            result = read(self._client)
        except Exception as problem:
            future.set_exception(problem)
            if not isinstance(problem, ApiError):
                # The connection may be broken: the next read opens another.
                client, self._client = self._client, None
                _close(client)
        else:
            future.set_result(result)
        with self._condition:
            self._is_wanted = self._is_wanted and bool(self._queue)


def _close(client: DescribingClient | None) -> None:
    if client is None:
        return
    try:
        client.close()
    except Exception:  # of a broken connection: without its thread no query of the worker would be read again
        log.warning("a client of the page could not be closed", exc_info=True)
