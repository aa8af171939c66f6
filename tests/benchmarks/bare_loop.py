"""An event loop that has nothing to do, in a process of its own: its longest pause is the machine's, not a broker's."""

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager

from logyard.broker.http.metrics import LOOK_S


@contextmanager
def beside() -> Iterator["multiprocessing.sharedctypes.Synchronized[float]"]:
    """Run one during the block; yields the longest pause so far, in ms."""
    longest_ms = multiprocessing.Value("d", 0.0)
    process = multiprocessing.Process(target=_run, args=(longest_ms,), daemon=True)
    process.start()
    try:
        yield longest_ms
    finally:
        process.terminate()
        process.join()


def _run(longest_ms: "multiprocessing.sharedctypes.Synchronized[float]") -> None:
    async def look() -> None:
        while True:
            due = time.perf_counter() + LOOK_S
            await asyncio.sleep(LOOK_S)
            longest_ms.value = max(longest_ms.value, (time.perf_counter() - due) * 1000)

    asyncio.run(look())
