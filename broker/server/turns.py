"""Work whose size a client chooses: done in a thread, or in pieces between which the event loop serves others."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from logyard.broker.replication.replicas import Replicas

T = TypeVar("T")


class Turns:
    """Of all the pieces that wait, one is done in a turn of the event loop: the one whose turn was asked for first."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def next(self) -> None:
        """Wait for a turn; the piece is what the caller does until it waits again."""
        async with self._lock:
            await asyncio.sleep(0)


async def in_thread(replicas: Replicas, work: Callable[[], T]) -> T:
    """What `work` returns or raises, done in a thread that never waits for others to look into records."""
    found: list[T] = []
    await replicas.in_disk_thread(lambda: found.append(work()))
    return found[0]
