"""The fixture that tests of a store share."""

from collections.abc import AsyncIterator

import pytest

from tests.support.stores import House


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House()
    yield house
    for store in house.stores:
        await store.abandon()
