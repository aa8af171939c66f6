"""Measures how long one piece of work holds the event loop up, while nobody else is served.

By the thread's own CPU time: what else the machine does counts for nothing.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator


class LongestTurn:
    """`seconds`: the longest work between two turns of the loop."""

    def __init__(self) -> None:
        self.seconds = 0.0

    async def watch(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.seconds, last = max(self.seconds, now - last), now


@contextlib.asynccontextmanager
async def longest_turn() -> AsyncIterator[LongestTurn]:
    """Measure the running loop during the block."""
    found = LongestTurn()
    watching = asyncio.ensure_future(found.watch())
    await asyncio.sleep(0)
    try:
        yield found
    finally:
        await asyncio.sleep(0)
        watching.cancel()
