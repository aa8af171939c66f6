"""Below level 3.0 brokers take their blocks of producer ids out of ZooKeeper: none twice, whoever is faster."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from logyard.broker.client.producer_ids import ProducerIds
from logyard.broker.clock import ManualClock
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.producer_id_blocks import ZooKeeperBlocks
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes.ops import Create, Delete, SessionExpired, SetData
from logyard.broker.znodes.producer_ids import LAST_ID, PATH, ProducerIdBlock, decode, encode

NOW_MS = 1_700_000_000_000


@pytest.fixture
def tree() -> ZooKeeperTree:
    """As brokers leave it at their first start: the znode is there, empty."""
    tree = ZooKeeperTree(ManualClock(5_000))
    tree.multi(MemoryZooKeeper(tree).session_id, [Create(PATH)])
    return tree


def blocks_of(zk: MemoryZooKeeper, broker: int) -> ZooKeeperBlocks:
    return ZooKeeperBlocks(zk, broker, lambda: NOW_MS)


def held(tree: ZooKeeperTree) -> ProducerIdBlock | None:
    znode = tree.read(PATH)
    assert znode is not None
    return decode(znode.data)


async def test_the_first_block_and_the_next(tree: ZooKeeperTree) -> None:
    zk = MemoryZooKeeper(tree)
    blocks = blocks_of(zk, 7)
    assert await blocks.allocate() == range(1000)
    assert held(tree) == ProducerIdBlock(7, 0, 999)
    assert await blocks.allocate() == range(1000, 2000)
    assert held(tree) == ProducerIdBlock(7, 1000, 1999)


@pytest.mark.parametrize("made_again", [True, False])  # by a broker that starts, or `logyard zk check --fix`
async def test_no_id_comes_twice_where_the_znode_was_deleted(tree: ZooKeeperTree, made_again: bool) -> None:
    zk = MemoryZooKeeper(tree)
    await zk.multi([Create("/controller_epoch", b"1")])
    blocks = blocks_of(zk, 7)
    assert await blocks.allocate() == range(1000)
    await zk.multi([Delete(PATH)])
    if made_again:
        await zk.multi([Create(PATH)])
    assert await blocks.allocate() == range(NOW_MS, NOW_MS + 1000), "no counting comes that far"
    assert await blocks.allocate() == range(NOW_MS + 1000, NOW_MS + 2000)


async def test_a_block_of_kafkas_is_gone_on_from(tree: ZooKeeperTree) -> None:
    zk = MemoryZooKeeper(tree)
    await zk.multi([SetData(PATH, b'{"version":1,"broker":3,"block_start":"4000","block_end":"4999"}')])
    assert await blocks_of(zk, 7).allocate() == range(5000, 6000)
    znode = tree.read(PATH)
    assert znode is not None
    assert znode.data == b'{"version":1,"broker":7,"block_start":"5000","block_end":"5999"}'


async def test_brokers_that_ask_at_once_share_no_id(tree: ZooKeeperTree) -> None:
    asking = [ProducerIds(blocks_of(MemoryZooKeeper(tree), broker).allocate) for broker in range(3)]
    found = await asyncio.gather(*(ids.next() for ids in asking for _ in range(1200)))
    assert len(set(found)) == 3600
    for ids in asking:
        ids.close()


class Overtaken(MemoryZooKeeper):
    """Another broker writes between this one's reading and writing, the first `times`."""

    def __init__(self, tree: ZooKeeperTree, times: int) -> None:
        super().__init__(tree)
        self.other, self.times = blocks_of(MemoryZooKeeper(tree), 9), times

    async def read(self, paths: Any) -> Any:
        found = await super().read(paths)
        if self.times:
            self.times -= 1
            await self.other.allocate()
        return found


async def test_who_is_overtaken_reads_again_and_takes_nothing_away(tree: ZooKeeperTree) -> None:
    assert await blocks_of(Overtaken(tree, 2), 7).allocate() == range(2000, 3000)
    assert held(tree) == ProducerIdBlock(7, 2000, 2999)
    assert await blocks_of(Overtaken(tree, 100), 7).allocate() is None
    assert held(tree) == ProducerIdBlock(9, 22_000, 22_999)


async def test_what_cannot_be_read_is_left_and_said(tree: ZooKeeperTree) -> None:
    zk = MemoryZooKeeper(tree)
    await zk.multi([SetData(PATH, b"{")])
    with capture_logs() as logs:
        assert await blocks_of(zk, 7).allocate() is None
    assert [entry["log_level"] for entry in logs] == ["error"]
    znode = tree.read(PATH)
    assert znode is not None
    assert znode.data == b"{"


async def test_the_last_id_there_is(tree: ZooKeeperTree) -> None:
    zk = MemoryZooKeeper(tree)
    await zk.multi([SetData(PATH, encode(ProducerIdBlock(3, LAST_ID - 999, LAST_ID)))])
    assert await blocks_of(zk, 7).allocate() is None


async def test_a_session_that_ended_is_no_end_of_producer_ids(tree: ZooKeeperTree) -> None:
    class Expired(MemoryZooKeeper):
        async def multi(self, ops: Any) -> Any:
            raise SessionExpired

    assert await blocks_of(Expired(tree), 7).allocate() is None
