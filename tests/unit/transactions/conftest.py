"""A world for each test, and a loop whose timers do not mind a machine that has other work."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.steady_loop import steady
from tests.support.transaction_world import TransactionWorld


@pytest.fixture(autouse=True)
async def steady_loop() -> None:
    steady(asyncio.get_running_loop())


@pytest.fixture
async def world() -> AsyncIterator[TransactionWorld]:
    """A coordinator that leads all partitions of the state log at epoch 5."""
    made = TransactionWorld()
    await made.elect()
    yield made
    await made.coordinator.close()
