"""Threads that look at records, few at a time; a look ends early when nobody waits for it any more."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from logyard.plugins.logyard_ui.cache.worker import Busy

T = TypeVar("T")

THREADS = 2
WAITING_MAX = 6


class Look(Generic[T]):
    """One look that runs or waits for its turn."""

    def __init__(self, future: "Future[T]", left: threading.Event) -> None:
        self.future, self._left = future, left

    def leave(self) -> None:
        """Nobody waits for the answer: what has not begun never does, what runs ends soon."""
        self._left.set()
        self.future.cancel()


class Looks:
    """All looks of this process. Its threads begin with the first look."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="logyard-records")
        self._lock = threading.Lock()
        self._open = 0

    def begin(self, read: Callable[[Callable[[], bool]], T]) -> Look[T]:
        """Start `read`, which is given a function that says whether the reader has left. Raises Busy."""
        with self._lock:
            if self._open >= THREADS + WAITING_MAX:
                raise Busy("others look at records already: try again in a moment")
            self._open += 1
        left = threading.Event()
        future = self._pool.submit(read, left.is_set)
        future.add_done_callback(self._ended)
        return Look(future, left)

    def _ended(self, _: "Future[T]") -> None:
        with self._lock:
            self._open -= 1
