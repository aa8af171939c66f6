"""A world of six brokers with a topic to move."""

from collections.abc import Callable

import pytest

from tests.support.controller_world import World


@pytest.fixture
async def six(make_world: Callable[..., World]) -> World:
    world = make_world()
    await world.start(1, 2, 3, 4, 5, 6)
    await world.make_topic("t", (1, 2, 3))
    return world
