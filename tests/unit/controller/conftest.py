"""A world of scripted brokers, whose invariants are checked at the end of a test."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.support.controller_invariants import check
from tests.support.controller_world import World


@pytest.fixture
async def make_world() -> AsyncIterator[Callable[..., World]]:
    worlds: list[World] = []

    def make(**settings: Any) -> World:
        worlds.append(World(**settings))
        return worlds[-1]

    yield make
    for world in worlds:
        await world.settle()
        check(world)
        await world.stop()


@pytest.fixture
async def world(make_world: Callable[..., World]) -> World:
    """Three brokers 1, 2, 3; 1 is controller."""
    world = make_world()
    await world.start(1, 2, 3)
    return world
