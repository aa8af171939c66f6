"""What a starting broker writes, and whose registration it may replace."""

import asyncio
import uuid

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.errors import CorruptData
from logyard.broker.model import BrokerInfo, Endpoint
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.registration import (
    BrokerIdTaken,
    BrokerRegistration,
    create_persistent_paths,
    generate_broker_id,
    get_or_create_cluster_id,
)
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes import brokers, paths
from logyard.broker.znodes.ops import Create, Watcher, Znode

INFO = BrokerInfo(3, (Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092),))


@pytest.fixture
def tree() -> ZooKeeperTree:
    return ZooKeeperTree(ManualClock())


@pytest.fixture
async def zk(tree: ZooKeeperTree) -> MemoryZooKeeper:
    client = MemoryZooKeeper(tree)
    await create_persistent_paths(client)
    return client


async def registered(zk: MemoryZooKeeper) -> Znode | None:
    return (await zk.read([brokers.path(3)]))[0]


async def test_the_skeleton_may_be_made_again(zk: MemoryZooKeeper) -> None:
    await create_persistent_paths(zk)
    assert None not in await zk.read(paths.PERSISTENT)


async def test_the_first_broker_names_the_cluster(zk: MemoryZooKeeper, tree: ZooKeeperTree) -> None:
    mine = await get_or_create_cluster_id(zk, lambda: uuid.UUID(int=1))
    assert await get_or_create_cluster_id(MemoryZooKeeper(tree), lambda: uuid.UUID(int=2)) == mine
    assert len(mine) == 22


async def test_a_broken_cluster_id_is_not_overwritten(zk: MemoryZooKeeper) -> None:
    await zk.multi([Create("/cluster"), Create("/cluster/id", b"?")])
    with pytest.raises(CorruptData, match="/cluster/id"):
        await get_or_create_cluster_id(zk, lambda: uuid.UUID(int=2))


async def test_generated_ids(zk: MemoryZooKeeper) -> None:
    assert [await generate_broker_id(zk, 1000), await generate_broker_id(zk, 1000)] == [1001, 1002]


async def test_the_epoch_is_the_czxid(zk: MemoryZooKeeper) -> None:
    epoch = await BrokerRegistration(zk).register(INFO, 5)
    znode = await registered(zk)
    assert znode is not None
    assert (znode.czxid, znode.version, znode.ephemeral_owner) == (epoch, 1, zk.session_id)
    assert brokers.decode(3, znode).endpoints == INFO.endpoints


async def test_registering_again_in_one_session_keeps_the_epoch(zk: MemoryZooKeeper) -> None:
    registration = BrokerRegistration(zk)
    assert await registration.register(INFO, 5) == await registration.register(INFO, 6)


async def test_another_brokers_registration_stays(zk: MemoryZooKeeper, tree: ZooKeeperTree) -> None:
    await BrokerRegistration(zk).register(INFO, 5)
    before = await registered(zk)
    with pytest.raises(BrokerIdTaken, match="broker id 3"):
        await BrokerRegistration(MemoryZooKeeper(tree)).register(INFO, 6)
    assert await registered(zk) == before


class Forgetful(MemoryZooKeeper):
    """Goes on in a new session while the server still has the old one."""

    def take_new_session(self) -> None:
        self._session_id = self.tree.open_session(self)


async def test_what_our_previous_session_left_is_replaced(tree: ZooKeeperTree) -> None:
    zk = Forgetful(tree)
    await create_persistent_paths(zk)
    # The old session's znode is still there when the new session registers, as KAFKA-7165 saw it.
    registration = BrokerRegistration(zk)
    first = await registration.register(INFO, 5)
    old = zk.session_id
    zk.take_new_session()
    second = await registration.register(INFO, 6)
    assert second > first
    tree.close_session(old)
    znode = await registered(zk)
    assert znode is not None
    assert znode.ephemeral_owner == zk.session_id


async def test_a_killed_predecessor_is_waited_for(
    zk: MemoryZooKeeper, tree: ZooKeeperTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = MemoryZooKeeper(tree)
    await BrokerRegistration(dead).register(INFO, 5)
    dead.crash()
    watched, look = asyncio.Event(), zk.read_and_watch

    async def noted(path: str, watcher: Watcher) -> Znode | None:
        found = await look(path, watcher)
        watched.set()
        return found

    monkeypatch.setattr(zk, "read_and_watch", noted)
    registering = asyncio.ensure_future(BrokerRegistration(zk).register(INFO, 6, patience_s=30))
    await watched.wait()
    assert not registering.done()
    tree.expire(dead.session_id)
    epoch = await registering
    znode = await registered(zk)
    assert znode is not None
    assert (znode.czxid, znode.ephemeral_owner) == (epoch, zk.session_id)


async def test_patience_ends_and_is_not_for_strangers(zk: MemoryZooKeeper, tree: ZooKeeperTree) -> None:
    await BrokerRegistration(MemoryZooKeeper(tree)).register(INFO, 5)
    with pytest.raises(BrokerIdTaken):
        await BrokerRegistration(zk).register(INFO, 6, patience_s=0.01)
    stranger = BrokerInfo(3, (Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9093),))
    with pytest.raises(BrokerIdTaken):
        await asyncio.wait_for(BrokerRegistration(zk).register(stranger, 6, patience_s=3600), 5)


async def test_a_lost_reply_is_our_own_registration(zk: MemoryZooKeeper) -> None:
    zk.lose_replies()
    epoch = await BrokerRegistration(zk).register(INFO, 5)
    znode = await registered(zk)
    assert znode is not None
    assert znode.czxid == epoch
