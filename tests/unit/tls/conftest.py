"""Tests of TLS run on uvloop, as brokers do, and on asyncio's own loop."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

Main = Callable[[], Coroutine[Any, Any, None]]


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Callable[[Main], None]:
    """Run a coroutine function on either loop."""

    def start(main: Main) -> None:
        async def limited() -> None:
            async with asyncio.timeout(20):
                await main()

        with asyncio.Runner(loop_factory=uvloop.new_event_loop if request.param == "uvloop" else None) as runner:
            runner.run(limited())

    return start
