"""What is left of a simulated process when its history is over."""

import asyncio
import gc
import random
import warnings

from tests.simulation.loop import SimLoop
from tests.simulation.network import Network
from tests.simulation.process import Process
from tests.simulation.trace import Trace


def test_what_a_buried_process_begins_in_its_last_breath_ends_with_it() -> None:
    """A broker's `finally` closes its listeners, each in a task."""
    trace = Trace(False)
    loop = SimLoop(Network(random.Random(1), trace), random.Random(2), trace)
    process = Process("b1")

    async def close() -> None:
        raise AssertionError("the process is dead")

    async def serve() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.gather(close(), close())

    async def history() -> None:
        process.spawn(serve())
        await asyncio.sleep(1)

    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(history())
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            process.bury()
            loop.close()
            gc.collect()
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    assert [str(one.message) for one in told if "never awaited" in str(one.message)] == []
    assert not process.tasks
