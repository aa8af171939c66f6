"""ACLs that ZooKeeper does not let this broker read or write: they cost their own pattern alone."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.errors import ApiError, ErrorCode, LogyardError
from logyard.broker.security.acls import watcher as watcher_module
from logyard.broker.security.acls.filters import AclFilter
from logyard.broker.security.acls.rules import Acls
from logyard.broker.security.acls.store import AclStore
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes import acls
from logyard.broker.znodes.acls import AclEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from logyard.broker.znodes.ops import Create, OpResult, ZkCode, ZkOp
from tests.support.acl_broker import AclBroker
from tests.support.guarded_zookeeper import GuardedZooKeeper

GUARDED, OPEN = (ResourcePattern(ResourceType.TOPIC, name) for name in ("guarded", "open"))
READ = AclEntry("User:a", Permission.ALLOW, Operation.READ)
WRITE = AclEntry("User:a", Permission.ALLOW, Operation.WRITE)
EVERYTHING = AclFilter(ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)


class ReadOnly(GuardedZooKeeper):
    """Nothing below the paths in `kept` may be written."""

    kept: frozenset[str] = frozenset()
    code = ZkCode.NO_AUTH
    writes = 0

    async def pipeline(self, multis: Sequence[Sequence[ZkOp]]) -> list[list[OpResult]]:
        self.writes += 1
        if any(op.path in self.kept for ops in multis for op in ops):
            refusal = [self.code if op.path in self.kept else ZkCode.ROLLED_BACK for ops in multis for op in ops]
            return [[OpResult(code) for code in refusal]]
        return await super().pipeline(multis)


Broker = AclBroker[ReadOnly]


@pytest.fixture
async def tree() -> ZooKeeperTree:
    return ZooKeeperTree(ManualClock(5_000))


@pytest.fixture
async def broker(tree: ZooKeeperTree) -> AsyncIterator[Broker]:
    made = Broker(ReadOnly(tree))
    await made.watcher.start()
    yield made
    await made.watcher.stop()


async def test_a_pattern_that_cannot_be_read_does_not_keep_the_others_from_being_obeyed(
    tree: ZooKeeperTree, broker: Broker
) -> None:
    other = AclStore(MemoryZooKeeper(tree), Acls(), lambda note: None, lambda bound: 0)
    await other.create(GUARDED, [READ])
    async with asyncio.timeout(5):
        while not broker.known.entries(GUARDED):
            await asyncio.sleep(0.001)
    broker.zk.refused.add(acls.path(GUARDED))
    await other.create(GUARDED, [WRITE])
    await other.create(OPEN, [READ])
    async with asyncio.timeout(5):
        while not broker.known.entries(OPEN):
            await asyncio.sleep(0.001)
    assert broker.known.entries(GUARDED) == {READ}, "it keeps those that are known"
    assert "does not let this identity read" in broker.notes[0]
    # A new session reads all of them again.
    await broker.watcher.start()
    assert broker.known.entries(OPEN) == {READ}


async def test_a_pattern_is_obeyed_soon_after_it_may_be_read_again(
    tree: ZooKeeperTree, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody tells of it: a right that was revoked meanwhile would go on."""
    monkeypatch.setattr(watcher_module, "UNREAD_AGAIN_S", 0.01)
    other = AclStore(MemoryZooKeeper(tree), Acls(), lambda note: None, lambda bound: 0)
    broker.zk.refused.add(acls.path(GUARDED))
    await other.create(GUARDED, [READ])
    async with asyncio.timeout(5):
        while broker.zk.reads < 20:
            await asyncio.sleep(0.001)
    assert len(broker.notes) == 1, "it is said once"
    broker.zk.refused.clear()
    async with asyncio.timeout(5):
        while not broker.known.entries(GUARDED):
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)
    before = broker.zk.reads
    await asyncio.sleep(0.05)
    assert broker.zk.reads == before, "then there is nothing more to look for"


async def test_the_first_load_fails_as_that_of_kafka(tree: ZooKeeperTree) -> None:
    """Who knows only some of the ACLs may allow what the others deny."""
    broker = Broker(ReadOnly(tree))
    await broker.store.create_paths()
    await broker.zk.multi([Create(acls.path(GUARDED), acls.encode([READ]))])
    broker.zk.refused.add(acls.path(GUARDED))
    with pytest.raises(LogyardError, match="does not let this identity read"):
        await broker.watcher.start()


async def test_what_cannot_be_read_is_refused_by_itself(tree: ZooKeeperTree, broker: Broker) -> None:
    broker.zk.refused.add(acls.path(GUARDED))
    with pytest.raises(ApiError, match="does not let this identity read") as refusal:
        await broker.store.create(GUARDED, [READ])
    assert refusal.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    await broker.store.create(OPEN, [READ])
    named = [EVERYTHING._replace(type=ResourceType.TOPIC, name=name) for name in ("guarded", "open")]
    deleted = await broker.store.delete(named)
    assert deleted[1] == {(OPEN, READ): None}


@pytest.mark.parametrize("code", [ZkCode.NO_AUTH, ZkCode.INVALID_ACL, ZkCode.FAILED])
async def test_what_may_not_be_written_is_refused_at_once(broker: Broker, code: ZkCode) -> None:
    broker.zk.code = code
    broker.zk.kept = frozenset({acls.path(GUARDED)})
    before = broker.zk.writes
    with pytest.raises(ApiError, match="refuses to write /kafka-acl/Topic/guarded"):
        await asyncio.wait_for(broker.store.create(GUARDED, [READ]), 5)
    assert broker.zk.writes == before + 1
