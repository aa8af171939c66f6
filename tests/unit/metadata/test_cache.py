"""The metadata cache under UpdateMetadata (facts §9)."""

import uuid
from collections import Counter
from typing import Any

import pytest

from logyard.broker import tasks
from logyard.broker.metadata.cache import MetadataCache, PartitionMetadata
from logyard.broker.metadata.updates import PartitionUpdate, UpdateMetadata
from logyard.broker.model import BrokerInfo, Endpoint, TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ID = uuid.UUID(int=9)


def broker(broker_id: int) -> Any:
    return BrokerInfo(broker_id, (Endpoint("PLAINTEXT", "PLAINTEXT", f"h{broker_id}", 9092),))


def update(*partitions: Any, brokers: Any = (1, 2), **fields: Any) -> Any:
    return UpdateMetadata(1, 3, 8, partitions, tuple(map(broker, brokers)), **fields)


def led(tp: TopicPartition, leader: int = 1, leader_epoch: int = 4) -> Any:
    return PartitionUpdate(tp, leader, leader_epoch, (1,), (1, 2), 6, (2,))


def test_partitions_are_merged_and_brokers_replaced() -> None:
    cache = MetadataCache()
    cache.apply_update(update(led(A0), led(A1)))
    cache.apply_update(update(led(A1, leader=2, leader_epoch=5), brokers=(2, 3)))
    assert cache.partition(A0) == PartitionMetadata((1, 2), (1,), 1, 4, (2,), 6)
    moved = cache.partition(A1)
    assert moved is not None
    assert moved.leader == 2
    assert list(cache.brokers) == [2, 3]
    assert [cache.is_alive(b) for b in (1, 2)] == [False, True]
    assert (cache.controller_id, cache.controller_epoch) == (1, 3)


def test_deletion_takes_the_topic_with_its_last_partition() -> None:
    cache, told = MetadataCache(), []
    cache.subscribe(lambda changed, deleted: told.append((list(changed), list(deleted))))
    cache.apply_update(update(led(A0), led(A1), led(B0), topic_ids={"a": ID}))
    assert cache.apply_update(update(led(A0, leader=-2))) == [A0]
    assert "a" in cache
    assert cache.apply_update(update(led(A1, leader=-2))) == [A1]
    assert "a" not in cache
    assert (list(cache.topics()), cache.partition(A0), cache.topic_name(ID)) == (["b"], None, None)
    assert told == [(["a", "b"], []), (["a"], [A0]), (["a"], [A1])]
    assert cache.apply_update(update(led(A1, leader=-2))) == []


def test_topic_ids() -> None:
    cache = MetadataCache()
    cache.apply_update(update(led(A0), topic_ids={"a": ID}))
    assert (cache.topic_id("a"), cache.topic_name(ID)) == (ID, "a")
    other = uuid.UUID(int=10)
    cache.apply_update(update(led(A0), topic_ids={"a": other}))
    assert (cache.topic_id("a"), cache.topic_name(ID), cache.topic_name(other)) == (other, None, "a")
    cache.apply_update(update(led(A0)))
    assert (cache.topic_id("a"), cache.topic_name(other)) == (None, None), "a zero id erases the known one"


def test_every_update_counts() -> None:
    cache = MetadataCache()
    before = cache.version
    cache.apply_update(update())
    assert cache.version > before
    assert cache.partition_count() == 0


def test_one_subscriber_that_fails_does_not_keep_the_news_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last ones forget the offsets of deleted partitions, and nobody tells them again."""
    monkeypatch.setattr(tasks, "failures", Counter[str]())
    cache, told = MetadataCache(), []

    def fails(*_: Any) -> None:
        raise IndexError("a bug")

    cache.subscribe(fails)
    cache.subscribe(lambda topics, deleted: told.append((topics, tuple(deleted))))
    cache.apply_update(update(led(A0)))
    assert told == [(("a",), ())]
    assert tasks.failures == {"news of metadata": 1}
