"""Who waits for topics: each for its own condition."""

import asyncio
from typing import Any

import pytest

from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.updates import UpdateMetadata
from logyard.broker.server.topic_waits import TopicWaits


async def test_a_condition_that_fails_ends_its_own_wait_alone() -> None:
    cache = MetadataCache()
    waits = TopicWaits(cache)
    is_there = is_broken = False

    def broken() -> bool:
        if is_broken:
            raise IndexError("a bug")
        return False

    async with asyncio.timeout(20):
        asked = [asyncio.ensure_future(waits.until(one, 60_000)) for one in (broken, lambda: is_there)]
        await asyncio.sleep(0)
        is_there = is_broken = True
        news: Any = UpdateMetadata(1, 3, 8, (), ())
        cache.apply_update(news)
        assert await asked[1]
        with pytest.raises(IndexError):
            await asked[0]
