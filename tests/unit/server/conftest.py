"""Loops whose timers do not mind a machine that has other work: broker and client are on one."""

import asyncio

import pytest
import pytest_asyncio

from tests.support.steady_loop import steady


@pytest.fixture(autouse=True)
async def steady_loop() -> None:
    steady(asyncio.get_running_loop())


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def steady_module() -> None:
    """For tests that share a broker, and so a loop."""
    steady(asyncio.get_running_loop())
