"""A thread with a client of its own: looks at one cluster in turn, and both are gone soon after nobody asks."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from logyard.admin.errors import ApiError, LogyardError
from logyard.admin.ports import DescribingClient

IDLE_S = 60.0
WAITING_MAX = 16

Ask = Callable[[DescribingClient], Any]


class Busy(LogyardError):
    """Too many questions wait for one cluster already."""


class Lane:
    """Clients are not for several threads at once, so each lane has one. `on_idle` is called by the thread's end."""

    def __init__(
        self, connect: Callable[[], DescribingClient], on_idle: Callable[[], None], idle_s: float = IDLE_S
    ) -> None:
        self._connect, self._on_idle, self._idle_s = connect, on_idle, idle_s
        self._condition = threading.Condition()
        self._waiting: deque[tuple[Ask, Future[Any]]] = deque()
        self._thread: threading.Thread | None = None
        self._client: DescribingClient | None = None
        self._closed = False

    @property
    def thread(self) -> threading.Thread | None:
        return self._thread

    def submit(self, ask: Ask) -> "Future[Any]":
        """Have something asked; the future gets its answer or its exception. Raises Busy."""
        future: Future[Any] = Future()
        # Who waits may give up; what they wait for is wanted by others, so it cannot be cancelled from the first on.
        future.set_running_or_notify_cancel()
        with self._condition:
            if self._closed or len(self._waiting) >= WAITING_MAX:
                raise Busy("too much is being asked of this cluster at once: try again in a moment")
            self._waiting.append((ask, future))
            if self._thread is None:
                # A daemon: a broker that does not answer must not hold the end of Airflow's server.
                thread = threading.Thread(target=self._work, name="logyard-page", daemon=True)
                thread.start()
                self._thread = thread
            self._condition.notify()
        return future

    def close(self) -> None:
        """Take nothing more; what is waiting is still answered."""
        with self._condition:
            self._closed = True
            self._condition.notify()

    def _work(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._waiting or self._closed, self._idle_s)
                if not self._waiting:
                    # Decided under the lock: whoever submits from now on starts another thread.
                    self._thread = None
                    client, self._client = self._client, None
                    break
                ask, future = self._waiting.popleft()
            self._answer(ask, future)
        _close(client)
        self._on_idle()

    def _answer(self, ask: Ask, future: "Future[Any]") -> None:
        try:
            if self._client is None:
                self._client = self._connect()
            answer = ask(self._client)
        except Exception as problem:
            if not isinstance(problem, ApiError):
                # It may be the connection: the next look opens another.
                client, self._client = self._client, None
                _close(client)
            future.set_exception(problem)
        else:
            future.set_result(answer)


def _close(client: DescribingClient | None) -> None:
    if client is not None:
        client.close()
