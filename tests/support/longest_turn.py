"""Measures how long one piece of work holds the event loop up, while nobody else is served.

By the thread's own CPU time: what else the machine does counts for nothing. Bounds are of a machine on which plain
Python takes USUAL_US; what is long on a slower one is divided by how much slower that is.
"""

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator
from typing import Any

from logyard.broker.protocol import codec
from tests.benchmarks.measuring import plain_python_us
from tests.support import collecting
from tests.support.inside_broker import InsideBroker
from tests.support.sasl_client import SaslClient

TRIES = 3
# Of measuring.plain_python_us, with a Python that was compiled without profile-guided optimization
# (docs/performance.md): the bounds hold there as they are.
USUAL_US = 138.0
SHORT_S = 0.03  # so long a turn is below every bound, on any machine


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
    """Measure the running loop during the block, without the collector: a round of it looks at what the test itself
    has made to ask for much, and at what others have left. A broker's own process spares it most of that.
    """
    found = LongestTurn()
    is_collecting = gc.isenabled()
    gc.disable()
    watching = asyncio.ensure_future(found.watch())
    await asyncio.sleep(0)
    try:
        yield found
    finally:
        await asyncio.sleep(0)
        watching.cancel()
        if is_collecting:
            gc.enable()
        if found.seconds > SHORT_S:
            found.seconds /= max(1.0, plain_python_us() / USUAL_US)


@contextlib.asynccontextmanager
async def longest_turn_uncollected() -> AsyncIterator[LongestTurn]:
    """As `longest_turn`, after a round of the collector."""
    gc.collect()
    async with longest_turn() as found:
        yield found


@contextlib.asynccontextmanager
async def longest_turn_of_the_new() -> AsyncIterator[LongestTurn]:
    """As `longest_turn`, with a collector that looks only at what is made during the block."""
    gc.collect()
    gc.freeze()
    try:
        async with longest_turn() as found:
            yield found
    finally:
        gc.unfreeze()
        collecting.leave_out()


def frame_of(key: int, version: int, fields: dict[str, Any]) -> bytes:
    """A request as a client sends it. What has a hundred thousand parts takes a second to write: once is enough."""
    return codec.encode_request(key, version, 1, "hand", fields)


async def timed_answer(
    broker: InsideBroker, key: int, version: int, asked: dict[str, Any] | bytes
) -> tuple[Any, float]:
    """Return a broker's answer, and the longest turn of the loop until it was there, without the collector."""
    client = await SaslClient.connect(broker.port)
    frame = asked if isinstance(asked, bytes) else frame_of(key, version, asked)
    async with longest_turn() as longest:
        client.send(frame)
        answer = await client.frame(120)
    await client.close()
    assert answer is not None
    return codec.decode_response(key, version, memoryview(answer))[1], longest.seconds


async def least_answer(
    broker: InsideBroker, key: int, version: int, asked: dict[str, Any] | bytes, bound_s: float
) -> tuple[Any, float]:
    """As `timed_answer`: the last answer, and the least of up to TRIES where turns were not below the bound.

    Work on the other half of a core makes CPU time dearer for a while.
    """
    frame = asked if isinstance(asked, bytes) else frame_of(key, version, asked)
    answer, least = await timed_answer(broker, key, version, frame)
    for _ in range(TRIES - 1):
        if least >= bound_s:
            answer, longest = await timed_answer(broker, key, version, frame)
            least = min(least, longest)
    return answer, least
