"""A large UpdateMetadata, in portions, makes of the metadata what it makes as a whole, and is seen as a whole."""

import asyncio
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logyard.broker import portions
from logyard.broker.metadata.cache import MetadataCache
from logyard.broker.metadata.large_update import LargeUpdate
from logyard.broker.metadata.updates import PartitionUpdate, UpdateMetadata
from logyard.broker.model import LEADER_DURING_DELETE, BrokerInfo, TopicPartition

TOPICS = ["a", "b", "c", "d"]
TPS = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 3))
PARTITIONS = st.builds(
    PartitionUpdate,
    TPS,
    st.sampled_from([1, 2, LEADER_DURING_DELETE, LEADER_DURING_DELETE]),
    st.integers(0, 9),
    st.just((1,)),
    st.just((1, 2)),
)
IDS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9)).filter(lambda ids: len({*ids.values()}) == len(ids))


def _update(epoch: int, partitions: list[PartitionUpdate], ids: dict[str, int], brokers: set[int]) -> UpdateMetadata:
    # A topic that is made again has another id.
    named = {topic: uuid.UUID(int=100 * epoch + number) for topic, number in ids.items()}
    return UpdateMetadata(1, epoch, -1, tuple(partitions), tuple(BrokerInfo(each, ()) for each in brokers), named)


UPDATES = st.lists(st.tuples(st.lists(PARTITIONS, max_size=20), IDS, st.sets(st.integers(1, 3))), max_size=5)


def seen(cache: MetadataCache) -> Any:
    """Everything that a reader can see."""
    topics = {topic: dict(cache.partitions(topic)) for topic in cache.topics()}
    ids = {topic: cache.topic_id(topic) for topic in TOPICS}
    names = {topic_id: cache.topic_name(topic_id) for topic_id in ids.values() if topic_id is not None}
    return list(topics), topics, ids, names, dict(cache.brokers), cache.controller_epoch, cache.version


@given(updates=UPDATES, at_once=st.integers(1, 5))
def test_portions_make_what_the_whole_makes(updates: list[Any], at_once: int) -> None:
    whole, parts = MetadataCache(), MetadataCache()
    told: dict[MetadataCache, list[Any]] = {whole: [], parts: []}
    for cache in (whole, parts):

        def hear(changed: Any, deleted: Any, cache: MetadataCache = cache) -> None:
            told[cache].append((changed, list(deleted), seen(cache)))

        cache.subscribe(hear)

    async def in_portions(update: UpdateMetadata) -> None:
        before = seen(parts)
        prepared = LargeUpdate(parts)
        running = asyncio.ensure_future(prepared.prepare(iter(update.partitions), update.topic_ids))
        while not running.done():
            assert seen(parts) == before, "nothing of it is seen yet"
            await asyncio.sleep(0)
        await running
        assert seen(parts) == before
        prepared.put_in_place(update)
        after = seen(parts)
        await prepared.let_go()
        assert seen(parts) == after

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(portions, "AT_ONCE", at_once)
        for epoch, one in enumerate(updates):
            update = _update(epoch, *one)
            whole.apply_update(update)
            asyncio.run(in_portions(update))
            assert seen(parts) == seen(whole)
    assert told[parts] == told[whole]


@given(updates=UPDATES.filter(bool))
def test_what_is_given_up_has_changed_nothing(updates: list[Any]) -> None:
    cache = MetadataCache()
    for epoch, one in enumerate(updates):
        cache.apply_update(_update(epoch, *one))
    before = seen(cache)
    for epoch, one in enumerate(updates):
        update = _update(10 + epoch, *one)
        asyncio.run(LargeUpdate(cache).prepare(update.partitions, update.topic_ids))
        assert seen(cache) == before
