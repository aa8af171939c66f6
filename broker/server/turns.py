"""Runs work whose size a client chooses: in a thread, or in pieces between which the event loop serves others."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from logyard.broker.replication.replicas import Replicas

T = TypeVar("T")

# Larger requests are decoded in a thread: it takes 3 µs for each part of a message, and a part may have three bytes.
LARGE_BODY_BYTES = 16 * 1024


class Turns:
    """Runs one waiting piece of work in each turn of the event loop, first come first served.

    `large`: held by who makes an answer piece by piece that small requests can ask for, and of which two together would
    be too much memory.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self.large = asyncio.Lock()

    async def next(self) -> None:
        """Wait for a turn. The caller then does one piece of work, until its next await."""
        async with self._lock:
            await asyncio.sleep(0)


async def in_thread(replicas: Replicas, work: Callable[[], T]) -> T:
    """Run `work` in a thread of the disk's pool, which never waits for work on records; return or raise its result."""
    found: list[T] = []
    await replicas.in_disk_thread(lambda: found.append(work()))
    return found[0]
