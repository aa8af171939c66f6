"""No task ends in silence: what it does not expect is logged and counted, and what has to go on goes on."""

import asyncio
import gc
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from logyard.broker import tasks


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    fresh: Counter[str] = Counter()
    monkeypatch.setattr(tasks, "failures", fresh)
    return fresh


async def test_what_goes_on_goes_on_after_an_exception(counted: Counter[str]) -> None:
    turns = 0

    async def work() -> None:
        nonlocal turns
        turns += 1
        if turns < 4:
            raise UnicodeError("what nobody thought of")

    with capture_logs() as logged:
        await tasks.keep("a loop", work, pause_s=0)
    assert turns == 4
    assert counted == {"a loop": 3}
    assert [line["task"] for line in logged] == ["a loop"] * 3
    assert isinstance(logged[0]["exc_info"], UnicodeError), "with its traceback"


async def test_a_bad_turn_of_what_is_done_every_so_often_is_one_turn(counted: Counter[str]) -> None:
    turns = 0

    async def work() -> None:
        nonlocal turns
        turns += 1
        raise RuntimeError

    task = tasks.every("a chore", 0.001, work)
    async with asyncio.timeout(10):
        while turns < 3:
            await asyncio.sleep(0.001)
    task.cancel()
    assert counted["a chore"] >= 3


async def test_a_future_that_somebody_else_cancels_ends_nothing(counted: Counter[str]) -> None:
    turns: Counter[str] = Counter()

    async def work(name: str) -> None:
        turns[name] += 1
        if turns[name] == 1:
            others = asyncio.get_running_loop().create_future()
            others.cancel()
            await others

    await tasks.keep("a loop", partial(work, "keep"), pause_s=0)
    assert turns["keep"] == 2
    task = tasks.every("a chore", 0.001, partial(work, "every"))
    async with asyncio.timeout(10):
        while turns["every"] < 3:
            await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled(), "its own end is one"
    assert counted == {"a loop": 1, "a chore": 1}


@pytest.mark.parametrize("start", [tasks.keep, partial(tasks.every, interval_s=0, first_s=0)], ids=["keep", "every"])
async def test_who_fails_while_it_is_ended_has_ended(start: Callable[..., Any], counted: Counter[str]) -> None:
    turns = 0

    async def work() -> None:
        nonlocal turns
        turns += 1
        try:
            await asyncio.sleep(60)
        finally:
            raise RuntimeError("a clean-up that fails")

    task = start(name="a loop", work=work)
    await asyncio.sleep(0.01)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=10)
    assert done, "it was started again"
    assert task.cancelled()
    assert turns == 1
    assert counted == {"a loop": 1}


async def test_what_is_done_once_is_told_and_who_waits_gets_it_too(counted: Counter[str]) -> None:
    async def work() -> None:
        raise ValueError("no")

    with capture_logs() as logged, pytest.raises(ValueError, match="no"):
        await tasks.spawn("once", work())
    await asyncio.sleep(0)
    assert counted == {"once": 1}
    assert logged[0]["event"] == "task failed"


async def test_who_is_cancelled_did_not_fail(counted: Counter[str]) -> None:
    task = tasks.keep("waiting", asyncio.Event().wait, pause_s=0)  # type: ignore[arg-type]
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert not counted


async def test_what_a_timer_raises_is_told(counted: Counter[str]) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(tasks.uncaught)

    def bad() -> None:
        raise KeyError("nothing")

    with capture_logs() as logged:
        loop.call_soon(bad)
        await asyncio.sleep(0.01)
    assert counted == {"callback": 1}
    assert isinstance(logged[0]["exc_info"], KeyError)


def test_a_loop_that_was_ended_is_let_go_of() -> None:
    loop = asyncio.new_event_loop()

    async def begin() -> None:
        tasks.spawn("waits", asyncio.sleep(3600))

    loop.run_until_complete(begin())
    loop.close()
    tasks.forget(loop)
    known = weakref.ref(loop)
    del loop
    gc.collect()
    assert known() is None
