"""The in-memory ZooKeeper keeps ZooKeeper's rules: transactions, versions, sessions, watches, lost replies."""

import asyncio
import contextlib
import random

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes.ops import (
    Check,
    Create,
    Delete,
    OpResult,
    SessionExpired,
    SetData,
    WatchEvent,
    ZkCode,
    ZkOp,
)
from tests.support import watch_races


@pytest.fixture
def tree() -> ZooKeeperTree:
    return ZooKeeperTree(ManualClock(5_000))


@pytest.fixture
async def zk(tree: ZooKeeperTree) -> MemoryZooKeeper:
    return MemoryZooKeeper(tree)


def codes(results: list[OpResult]) -> list[ZkCode]:
    return [result.code for result in results]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class TestMulti:
    async def test_all_or_nothing(self, zk: MemoryZooKeeper) -> None:
        await zk.multi([Create("/a", b"1")])
        ops: list[ZkOp] = [
            SetData("/a", b"2", 0),
            Create("/a/b"),
            Delete("/a/b"),
            Create("/e", ephemeral=True),
            Delete("/a", 7),
            Create("/c"),
        ]
        assert codes(await zk.multi(ops)) == [ZkCode.ROLLED_BACK] * 4 + [ZkCode.BAD_VERSION, ZkCode.ROLLED_BACK]
        assert await zk.children(["/", "/a"]) == [["a"], []]
        (znode,) = await zk.read(["/a"])
        assert znode is not None
        assert (znode.data, znode.version) == (b"1", 0)

    @pytest.mark.parametrize(
        ("op", "code"),
        [
            (Create("/a"), ZkCode.NODE_EXISTS),
            (Create("/x/y"), ZkCode.NO_NODE),
            (Create("/eph/x"), ZkCode.FAILED),
            (Create("bad"), ZkCode.FAILED),
            (SetData("/x", b""), ZkCode.NO_NODE),
            (SetData("/a", b"", 3), ZkCode.BAD_VERSION),
            (Delete("/p"), ZkCode.NOT_EMPTY),
            (Delete("/x"), ZkCode.NO_NODE),
            (Check("/a", 1), ZkCode.BAD_VERSION),
            (Check("/x", 0), ZkCode.NO_NODE),
        ],
    )
    async def test_refusals(self, zk: MemoryZooKeeper, op: ZkOp, code: ZkCode) -> None:
        await zk.multi([Create("/a"), Create("/p"), Create("/p/c"), Create("/eph", ephemeral=True)])
        assert codes(await zk.multi([op])) == [code]

    async def test_answers_carry_version_path_and_czxid(self, zk: MemoryZooKeeper, tree: ZooKeeperTree) -> None:
        create, put = await zk.multi([Create("/e", ephemeral=True), SetData("/e", b"x", 0)])
        assert (create.path, create.czxid) == ("/e", tree.zxid)
        assert (put.version, put.czxid) == (1, tree.zxid)
        (znode,) = await zk.read(["/e"])
        assert znode is not None
        assert (znode.ephemeral_owner, znode.mtime_ms) == (zk.session_id, 5_000)

    async def test_sequence_counts_children_ever_made(self, zk: MemoryZooKeeper) -> None:
        await zk.multi([Create("/q"), Create("/q/other")])
        first, second = await zk.multi([Create("/q/n_", sequential=True), Create("/q/n_", sequential=True)])
        assert [first.path, second.path] == ["/q/n_0000000001", "/q/n_0000000002"]
        await zk.multi([Delete(second.path), Check("/none", 0)])
        await zk.multi([Delete(second.path)])
        (third,) = await zk.multi([Create("/q/n_", sequential=True)])
        assert third.path == "/q/n_0000000003"


class TestWatches:
    async def test_one_shot_and_by_kind(self, zk: MemoryZooKeeper) -> None:
        seen: list[tuple[WatchEvent, str]] = []

        def watcher(event: WatchEvent, path: str) -> None:
            seen.append((event, path))

        assert await zk.read_and_watch("/a", watcher) is None
        assert await zk.children_and_watch("/a", watcher) is None
        await zk.multi([Create("/a", b"")])
        assert seen == [(WatchEvent.CREATED, "/a")]
        await zk.multi([SetData("/a", b"1")])
        assert len(seen) == 1
        assert (await zk.read_and_watch("/a", watcher)) is not None
        assert (await zk.read_and_watch("/a", watcher)) is not None
        await zk.multi([Create("/a/b")])
        assert len(seen) == 1
        await zk.multi([SetData("/a", b"2")])
        assert seen[1:] == [(WatchEvent.CHANGED, "/a")]
        assert await zk.children_and_watch("/a", watcher) == ["b"]
        await zk.multi([Create("/a/c")])
        assert seen[2:] == [(WatchEvent.CHILDREN, "/a")]

    async def test_a_deletion_ends_child_watches_too(self, zk: MemoryZooKeeper) -> None:
        seen: list[WatchEvent] = []
        await zk.multi([Create("/a")])
        await zk.children_and_watch("/a", lambda event, path: seen.append(event))
        await zk.read_and_watch("/a", lambda event, path: seen.append(event))
        await zk.multi([Delete("/a")])
        assert seen == [WatchEvent.DELETED, WatchEvent.DELETED]

    async def test_many_at_once_are_of_either_kind(self, zk: MemoryZooKeeper) -> None:
        seen: list[tuple[WatchEvent, str]] = []

        def watcher(event: WatchEvent, path: str) -> None:
            seen.append((event, path))

        await zk.multi([Create("/a", b"1")])
        znode, absent = await zk.read_and_watch_all([("/a", watcher), ("/b", watcher)])
        assert (znode is not None and znode.data, absent) == (b"1", None)
        assert seen == []
        await zk.multi([SetData("/a", b"2"), Create("/b")])
        await zk.multi([SetData("/a", b"3"), SetData("/b", b"3")])
        assert seen == [(WatchEvent.CHANGED, "/a"), (WatchEvent.CREATED, "/b")]

    @pytest.mark.parametrize("seed", range(20))
    async def test_no_change_falls_between_read_and_watch(self, tree: ZooKeeperTree, seed: int) -> None:
        rng = random.Random(seed)
        zk = MemoryZooKeeper(tree, latency=lambda: rng.random() / 1000)

        def disturb() -> None:
            zk.disconnect()
            asyncio.get_running_loop().call_later(rng.random() / 1000, zk.reconnect)

        await watch_races.race(zk, MemoryZooKeeper(tree), seed, disturb)

    async def test_a_session_that_ends_amid_the_watches_keeps_none(
        self, tree: ZooKeeperTree, zk: MemoryZooKeeper
    ) -> None:
        seen: list[WatchEvent] = []
        other = MemoryZooKeeper(tree)
        for turns in range(1, 6):
            watching = asyncio.ensure_future(zk.read_and_watch_all([("/a", lambda event, path: seen.append(event))]))
            for _ in range(turns):
                await asyncio.sleep(0)
            tree.expire(zk.session_id)
            with contextlib.suppress(SessionExpired):
                await watching
            await settle()
            await other.multi([Create("/a")])
            await other.multi([Delete("/a")])
            await zk.read(["/"])
            assert seen == []

    async def test_the_event_comes_before_a_later_reads_answer(self, tree: ZooKeeperTree) -> None:
        delays = iter([0.003, 0.001] * 50)
        reader = MemoryZooKeeper(tree, latency=lambda: next(delays))
        writer = MemoryZooKeeper(tree)
        order: list[str] = []
        await reader.read_and_watch("/a", lambda event, path: order.append("event"))
        await writer.multi([Create("/a")])
        assert (await reader.read(["/a"]))[0] is not None
        order.append("read")
        assert order == ["event", "read"]


class TestSessions:
    async def test_expiry(self, tree: ZooKeeperTree, zk: MemoryZooKeeper) -> None:
        other = MemoryZooKeeper(tree, 7, reconnect_s=0.01)
        told: list[object] = []
        back = asyncio.Event()
        other.on_session_lost = lambda: told.append("lost")

        def established(session_id: int) -> None:
            told.append(session_id)
            back.set()

        other.on_session_established = established
        await other.multi([Create("/e", ephemeral=True)])
        gone: list[WatchEvent] = []
        await zk.read_and_watch("/e", lambda event, path: gone.append(event))
        await other.read_and_watch("/e", lambda event, path: told.append("a watch of a dead session"))
        reading = asyncio.ensure_future(other.pipeline([[Create("/late")], [Create("/later")]]))
        await asyncio.sleep(0)
        tree.expire(7)
        with pytest.raises(SessionExpired):
            await reading
        assert told == ["lost"]
        with pytest.raises(SessionExpired):
            await other.read(["/"])
        await back.wait()
        assert gone == [WatchEvent.DELETED]
        assert told == ["lost", other.session_id]
        assert other.session_id != 7
        assert await other.read(["/e"]) == [None]

    async def test_close_removes_ephemerals_at_once(self, tree: ZooKeeperTree, zk: MemoryZooKeeper) -> None:
        other = MemoryZooKeeper(tree)
        await other.multi([Create("/e", ephemeral=True), Create("/stays")])
        await other.close()
        assert await zk.children(["/"]) == [["stays"]]
        with pytest.raises(SessionExpired):
            await other.read(["/"])

    async def test_a_crash_says_nothing_until_the_session_expires(
        self, tree: ZooKeeperTree, zk: MemoryZooKeeper
    ) -> None:
        other = MemoryZooKeeper(tree)
        await other.multi([Create("/e", ephemeral=True)])
        other.crash()
        assert await zk.children(["/"]) == [["e"]]
        tree.expire(other.session_id)
        assert await zk.children(["/"]) == [[]]


class TestBrokenConnections:
    async def test_a_lost_reply_is_no_failure(self, zk: MemoryZooKeeper) -> None:
        await zk.multi([Create("/epoch", b"1")])
        zk.lose_replies()
        create, put = await zk.multi([Create("/controller", b"me", ephemeral=True), SetData("/epoch", b"2", 0)])
        assert (create.ok, put.ok, put.version) == (True, True, 1)

    async def test_a_lost_reply_after_which_someone_else_wrote_is_a_refusal(
        self, tree: ZooKeeperTree, zk: MemoryZooKeeper
    ) -> None:
        other = MemoryZooKeeper(tree)
        await zk.multi([Create("/s", b"0")])
        writing = asyncio.ensure_future(zk.multi([SetData("/s", b"mine", 0)]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # carried out, the answer is on its way
        zk.disconnect()
        await other.multi([SetData("/s", b"theirs", 1)])
        zk.reconnect()
        assert codes(await writing) == [ZkCode.BAD_VERSION]

    async def test_a_cut_off_client_learns_of_its_expiry_only_on_return(
        self, tree: ZooKeeperTree, zk: MemoryZooKeeper
    ) -> None:
        lost: list[bool] = []
        zk.on_session_lost = lambda: lost.append(True)
        zk.disconnect()
        waiting = asyncio.ensure_future(zk.read(["/"]))
        await settle()
        tree.expire(zk.session_id)
        await settle()
        assert not lost
        assert not waiting.done()
        zk.reconnect()
        with pytest.raises(SessionExpired):
            await waiting
        assert lost == [True]

    async def test_events_wait_for_the_connection(self, tree: ZooKeeperTree, zk: MemoryZooKeeper) -> None:
        seen: list[WatchEvent] = []
        other = MemoryZooKeeper(tree)
        await zk.read_and_watch("/a", lambda event, path: seen.append(event))
        zk.disconnect()
        await other.multi([Create("/a")])
        await settle()
        assert seen == []
        zk.reconnect()
        assert (await zk.read(["/a"]))[0] is not None
        assert seen == [WatchEvent.CREATED]
