"""Offsets in ZooKeeper: each partition alone, in chunks, whoever else writes there."""

from collections.abc import Sequence

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.errors import ErrorCode
from logyard.broker.groups import zookeeper_offsets
from logyard.broker.model import TopicPartition
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes.ops import Create, Delete, OpResult, SetData, ZkOp, Znode

NONE, UNKNOWN, BROKEN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.fixture
async def zk() -> MemoryZooKeeper:
    client = MemoryZooKeeper(ZooKeeperTree(ManualClock()))
    await client.multi([Create("/consumers")])
    return client


def tps(count: int, topic: str = "t") -> list[TopicPartition]:
    return [TopicPartition(topic, p) for p in range(count)]


async def test_what_was_written_is_read(zk: MemoryZooKeeper) -> None:
    offsets = {tp: tp.partition * 10 - 1 for tp in tps(250)} | {TopicPartition("other", 0): 2**63 - 1}
    for _ in range(2):  # made, then set
        assert await zookeeper_offsets.commit(zk, "g", offsets) == dict.fromkeys(offsets, NONE)
    assert zk.tree.children("/consumers/g/offsets") == ["other", "t"]
    found = await zookeeper_offsets.fetch(zk, "g", [*offsets, TopicPartition("t", 999)])
    assert found.pop(TopicPartition("t", 999)) == (UNKNOWN, -1)
    assert found == {tp: (NONE, offset) for tp, offset in offsets.items()}
    assert await zookeeper_offsets.fetch(zk, "h", tps(1)) == {TopicPartition("t", 0): (UNKNOWN, -1)}


@pytest.mark.parametrize("name", ["", "a//b", "..", "\0", "😀"])
async def test_a_name_that_is_no_path(zk: MemoryZooKeeper, name: str) -> None:
    (tp,) = tps(1)
    before = zk.tree.zxid
    assert await zookeeper_offsets.commit(zk, name, {tp: 1}) == {tp: BROKEN}
    assert await zookeeper_offsets.fetch(zk, name, [tp]) == {tp: (BROKEN, -1)}
    assert zk.tree.zxid == before


async def test_one_that_is_no_number_harms_no_other(zk: MemoryZooKeeper) -> None:
    first, second = tps(2)
    await zookeeper_offsets.commit(zk, "g", {first: 1, second: 2})
    await zk.multi([SetData("/consumers/g/offsets/t/0", b"one")])
    assert await zookeeper_offsets.fetch(zk, "g", [first, second]) == {first: (BROKEN, -1), second: (NONE, 2)}


async def test_no_request_is_longer_than_a_server_accepts(monkeypatch: pytest.MonkeyPatch, zk: MemoryZooKeeper) -> None:
    read: list[int] = []
    written: list[int] = []

    async def reading(paths: Sequence[str]) -> list[Znode | None]:
        read.append(sum(map(len, paths)))
        return await MemoryZooKeeper.read(zk, paths)

    async def writing(multis: Sequence[Sequence[ZkOp]]) -> list[list[OpResult]]:
        written.append(len(multis))
        return await MemoryZooKeeper.pipeline(zk, multis)

    monkeypatch.setattr(zk, "read", reading)
    monkeypatch.setattr(zk, "pipeline", writing)
    group, asked = "g" * 32_767, tps(40)
    assert set((await zookeeper_offsets.commit(zk, group, dict.fromkeys(asked, 5))).values()) == {NONE}
    assert set((await zookeeper_offsets.fetch(zk, group, asked)).values()) == {(NONE, 5)}
    assert len(read) > 1
    assert max(read) < 500_000
    assert max(written) <= 100


async def test_a_lost_session_is_an_error_for_each_partition(zk: MemoryZooKeeper) -> None:
    zk.tree.expire(zk.session_id)
    assert await zookeeper_offsets.commit(zk, "g", dict.fromkeys(tps(2), 1)) == dict.fromkeys(tps(2), BROKEN)


@pytest.mark.parametrize("meddling", [Delete("/consumers/g/offsets/t/0"), Create("/consumers/g/offsets/t/1", b"8")])
async def test_others_who_write_there(monkeypatch: pytest.MonkeyPatch, zk: MemoryZooKeeper, meddling: ZkOp) -> None:
    """A znode that vanishes before it is set, or appears before it is created, is written all the same."""
    await zookeeper_offsets.commit(zk, "g", {TopicPartition("t", 0): 1})
    meddled: list[int] = []

    async def pipeline(multis: Sequence[Sequence[ZkOp]]) -> list[list[OpResult]]:
        if not meddled and (isinstance(meddling, Delete) or any(isinstance(ops[0], Create) for ops in multis)):
            meddled.append(1)
            await zk.multi([meddling])
        return await MemoryZooKeeper.pipeline(zk, multis)

    monkeypatch.setattr(zk, "pipeline", pipeline)
    assert await zookeeper_offsets.commit(zk, "g", dict.fromkeys(tps(2), 7)) == dict.fromkeys(tps(2), NONE)
    assert meddled
    assert await zookeeper_offsets.fetch(zk, "g", tps(2)) == dict.fromkeys(tps(2), (NONE, 7))
