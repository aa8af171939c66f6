"""Which partitions exist no more, by the topics' znodes."""

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.model import Assignment, TopicAssignment, TopicPartition
from logyard.broker.transactions.markers.deleted import find_deleted
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.registration import create_persistent_paths
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes import topics
from logyard.broker.znodes.ops import Create, SessionExpired

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.fixture
async def zk() -> MemoryZooKeeper:
    zk = MemoryZooKeeper(ZooKeeperTree(ManualClock()))
    await create_persistent_paths(zk)
    return zk


async def test_what_no_topic_has_was_deleted(zk: MemoryZooKeeper) -> None:
    await zk.multi([Create(topics.topic_path("t"), topics.encode(TopicAssignment({0: Assignment((1,))})))])
    assert await find_deleted(zk, [T0, T1, U0]) == [T1, U0]
    assert await find_deleted(zk, []) == []


async def test_a_topic_is_decoded_once_whatever_is_asked_of_it(
    zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each partition of a transaction it took its time: a thousand of a topic of a thousand some seconds."""
    assignment = TopicAssignment({number: Assignment((1,)) for number in range(1000)})
    await zk.multi([Create(topics.topic_path("t"), topics.encode(assignment))])
    decode, decoded = topics.decode, list[str]()

    def counted(data: bytes, path: str) -> TopicAssignment:
        decoded.append(path)
        return decode(data, path)

    monkeypatch.setattr(topics, "decode", counted)
    asked = [TopicPartition("t", number) for number in range(1001)]
    assert await find_deleted(zk, [U0, *asked]) == [U0, asked[-1]]
    assert decoded == [topics.topic_path("t")]


async def test_a_topic_that_cannot_be_read_was_not_deleted(zk: MemoryZooKeeper) -> None:
    await zk.multi([Create(topics.topic_path("t"), b"{")])
    assert await find_deleted(zk, [T0]) == []


async def test_without_a_session_nothing_is_known(zk: MemoryZooKeeper) -> None:
    zk.tree.expire(zk.session_id)
    with pytest.raises(SessionExpired):
        await find_deleted(zk, [T0])
