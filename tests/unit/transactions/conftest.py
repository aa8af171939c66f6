"""A world for each test."""

from collections.abc import AsyncIterator

import pytest

from tests.support.transaction_world import TransactionWorld


@pytest.fixture
async def world() -> AsyncIterator[TransactionWorld]:
    """A coordinator that leads all partitions of the state log at epoch 5."""
    made = TransactionWorld()
    await made.elect()
    yield made
    await made.coordinator.close()
