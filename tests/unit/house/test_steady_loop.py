"""The loop of tests whose timers do not mind a machine that has other work."""

import asyncio
import time

from tests.support.steady_loop import steady


async def test_what_was_due_while_the_machine_stood_still_comes_in_its_time() -> None:
    loop = asyncio.get_running_loop()
    steady(loop)
    steady(loop)  # twice does no harm
    came: list[str] = []
    loop.call_later(0.1, came.append, "late")
    time.sleep(0.3)
    await asyncio.sleep(0.01)
    assert came == []
    await asyncio.sleep(0.2)
    assert came == ["late"]


async def test_waiting_takes_as_long_as_it_is_meant_to() -> None:
    loop = asyncio.get_running_loop()
    steady(loop)
    begun, begun_s = loop.time(), time.monotonic()
    await asyncio.sleep(0.05)
    assert 0.049 <= loop.time() - begun <= time.monotonic() - begun_s + 0.01


async def test_work_of_the_loop_counts() -> None:
    loop = asyncio.get_running_loop()
    steady(loop)
    begun, work = loop.time(), time.thread_time() + 0.05
    while time.thread_time() < work:
        pass
    assert loop.time() - begun >= 0.05
