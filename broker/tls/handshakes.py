"""The threads in which TLS handshakes are computed, and the limits on handshakes that wait for their peers.

A handshake costs a millisecond with the private key, and more with a chain of certificates that the peer chooses: on
the event loop it would hold up everybody else. Connections that were begun and not finished take memory, so the one
that has waited longest for its peer is cut off when there are too many.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

THREADS = 2
# Half-open handshakes of all listeners; each takes about 50 KiB.
WAITING_MAX = 2048
TIME_S = 30.0
# Received bytes of all connections pass through one buffer: a connection leaves nothing in it.
SCRATCH_BYTES = 128 * 1024


class Waiting(Protocol):
    """A connection in a handshake."""

    def cut_off(self, why: str) -> None: ...


class Handshakes:
    """One for each broker. Everything but the work itself is called on the event loop."""

    def __init__(self, threads: int = THREADS, waiting_max: int = WAITING_MAX, time_s: float = TIME_S) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="tls")
        self._waiting_max = waiting_max
        self._waiting: dict[Waiting, None] = {}  # the longest waiting first
        self.time_s = time_s
        self.done = 0
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))

    @property
    def waiting_count(self) -> int:
        """How many handshakes wait for their peers' next bytes."""
        return len(self._waiting)

    def gauges(self) -> dict[str, int]:
        """Return the figures for /metrics."""
        return {"tls_handshakes_waiting": self.waiting_count, "tls_handshakes_done": self.done}

    def compute(self, work: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Do a step of a handshake in a thread."""
        return asyncio.get_running_loop().run_in_executor(self._pool, work)

    def waits(self, connection: Waiting) -> None:
        """Note that a handshake was begun and waits for its peer; the longest waiting may be cut off for it."""
        self._waiting[connection] = None
        if len(self._waiting) > self._waiting_max:
            next(iter(self._waiting)).cut_off("too many handshakes are unfinished")

    def goes_on(self, connection: Waiting) -> None:
        """Note that a handshake does not wait any more, or that its connection is gone."""
        self._waiting.pop(connection, None)

    def close(self) -> None:
        """Begin no more work."""
        self._pool.shutdown(wait=False, cancel_futures=True)
