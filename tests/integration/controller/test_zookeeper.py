"""The kazoo session against the real server, and the in-memory twin against both."""

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler

from logyard.broker.clock import ManualClock
from logyard.broker.errors import LogyardError
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.session import ZooKeeperSession, ZooKeeperUnavailable
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes.ops import (
    Check,
    Create,
    Delete,
    SessionExpired,
    SetData,
    WatchEvent,
    ZkCode,
    ZkOp,
    ZooKeeper,
)
from tests.support import watch_races
from tests.support.zookeeper import ZooKeeperServer, running_zookeeper

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


_chroots = iter(range(1_000_000))


async def opened(server: ZooKeeperServer, chroot: str, **options: Any) -> ZooKeeperSession:
    session = ZooKeeperSession(server.connect + chroot, **options)
    await session.wait_connected(30)
    return session


@pytest.fixture
def chroot() -> str:
    return f"/tests/{next(_chroots)}"


@pytest.fixture
async def zk(server: ZooKeeperServer, chroot: str) -> AsyncIterator[ZooKeeperSession]:
    session = await opened(server, chroot)
    yield session
    await session.close()


_sockets: dict[object, socket.socket] = {}  # the newest connection of every client of kazoo, by its handler


@pytest.fixture(autouse=True)
def sockets_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = SequentialThreadingHandler.create_connection

    def noted(handler: object, *args: Any, **named: Any) -> Any:
        _sockets[handler] = connect(handler, *args, **named)
        return _sockets[handler]

    monkeypatch.setattr(SequentialThreadingHandler, "create_connection", noted)


async def break_connection(zk: ZooKeeperSession) -> None:
    """Cut the TCP connection under kazoo, as a network would."""
    link = zk.link
    assert link is not None
    with contextlib.suppress(OSError):  # it is broken already
        _sockets[link.client.handler].shutdown(socket.SHUT_RDWR)


async def test_the_chroot_is_made_and_stays_unseen(server: ZooKeeperServer, zk: ZooKeeperSession, chroot: str) -> None:
    (made,) = await zk.multi([Create("/a", b"x")])
    assert made.path == "/a"
    whole = await opened(server, "")
    assert await whole.children([chroot]) == [["a"]]
    await whole.close()


async def test_nobody_there() -> None:
    session = ZooKeeperSession("127.0.0.1:1")
    with pytest.raises(ZooKeeperUnavailable, match=r"127\.0\.0\.1:1"):
        await session.wait_connected(0.3)
    await session.close()


async def test_many_reads_and_pipelined_multis(zk: ZooKeeperSession) -> None:
    await zk.multi([Create("/t")])
    answers = await zk.pipeline([[Create(f"/t/{n}", str(n).encode())] for n in range(1200)])
    assert all(answer[0].ok for answer in answers)
    znodes = await zk.read([f"/t/{n}" for n in range(1300)])
    assert [z and z.data for z in znodes] == [str(n).encode() for n in range(1200)] + [None] * 100
    assert await zk.children(["/t/1", "/none", "/"]) == [[], None, ["t"]]


async def test_no_operations_at_all(zk: ZooKeeperSession) -> None:
    assert await zk.multi([]) == []
    assert await zk.pipeline([]) == []
    assert await zk.read([]) == []


async def test_a_request_the_server_cannot_take_is_given_up(zk: ZooKeeperSession) -> None:
    before = zk.session_id
    with pytest.raises(LogyardError, match=r"jute\.maxbuffer"):
        await asyncio.wait_for(zk.multi([Create("/large", bytes(1_200_000))]), 20)
    assert await zk.read(["/large"]) == [None]
    assert zk.session_id == before


async def test_watches_outlive_a_broken_connection(server: ZooKeeperServer, zk: ZooKeeperSession, chroot: str) -> None:
    other = await opened(server, chroot)
    seen: list[tuple[WatchEvent, str]] = []

    def watcher(event: WatchEvent, path: str) -> None:
        seen.append((event, path))

    await zk.multi([Create("/data"), Create("/kids"), Create("/still")])
    await zk.read_and_watch("/data", watcher)
    await zk.read_and_watch("/absent", watcher)
    await zk.read_and_watch_all([("/still", watcher), ("/many", watcher)])
    await zk.children_and_watch("/kids", watcher)
    session_id = zk.session_id
    await break_connection(zk)
    await other.multi([SetData("/data", b"1"), Create("/absent"), Create("/kids/k")])
    await zk.read(["/"])  # the answer comes after the events
    expected = [(WatchEvent.CHANGED, "/data"), (WatchEvent.CREATED, "/absent"), (WatchEvent.CHILDREN, "/kids")]
    assert sorted(seen, key=str) == sorted(expected, key=str)
    await other.multi([SetData("/still", b"1"), Create("/many")])
    await zk.read(["/"])
    assert seen[3:] == [(WatchEvent.CHANGED, "/still"), (WatchEvent.CREATED, "/many")]
    assert zk.session_id == session_id
    await other.close()


@pytest.mark.parametrize("seed", range(6))
async def test_no_change_falls_between_read_and_watch(
    server: ZooKeeperServer, zk: ZooKeeperSession, chroot: str, seed: int
) -> None:
    other = await opened(server, chroot)
    breaks: set[asyncio.Future[None]] = set()
    await watch_races.race(zk, other, seed, lambda: breaks.add(asyncio.ensure_future(break_connection(zk))))
    await other.close()


async def test_writes_under_way_survive_broken_connections(zk: ZooKeeperSession) -> None:
    await zk.multi([Create("/n", b"0")])

    async def breaker() -> None:
        for pause_ms in range(8):
            await zk.read(["/n"])
            await asyncio.sleep(pause_ms / 1000)
            await break_connection(zk)

    breaking = asyncio.ensure_future(breaker())
    version = 0
    while not breaking.done():
        (result,) = await zk.multi([SetData("/n", str(version).encode(), version)])
        assert result.ok, "a write that was done must not be reported as refused"
        version += 1
        assert result.version == version
    await breaking


async def test_an_expired_session_is_reported_and_followed_by_a_new_one(
    server: ZooKeeperServer, zk: ZooKeeperSession, chroot: str
) -> None:
    told: asyncio.Queue[object] = asyncio.Queue()
    zk.on_session_lost = lambda: told.put_nowait("lost")
    zk.on_session_established = told.put_nowait
    await zk.multi([Create("/mine", b"x", ephemeral=True)])
    await zk.read_and_watch("/mine", lambda event, path: told.put_nowait("a watch of a dead session"))
    old = zk.session_id
    link = zk.link
    assert link is not None
    # Another client that resumes our session and says goodbye ends it, as a time-out would.
    thief = KazooClient(server.connect, client_id=link.client.client_id)
    await asyncio.to_thread(thief.start)
    await asyncio.to_thread(thief.stop)
    thief.close()
    assert await asyncio.wait_for(told.get(), 20) == "lost"
    with pytest.raises(SessionExpired):
        await zk.multi([Create("/late")])
    new = await asyncio.wait_for(told.get(), 20)
    assert new == zk.session_id != old
    assert await zk.read(["/mine", "/late"]) == [None, None]
    assert told.empty()


async def test_a_restarted_server_is_found_again(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path / "own") as own:
        # A session that outlives the restart even where a loaded machine takes its time over it.
        zk = await opened(own, "/c", session_timeout_ms=90_000)
        await zk.multi([Create("/a", b"1")])
        own.stop()
        reading = asyncio.ensure_future(zk.read(["/a"]))
        await asyncio.to_thread(own.start)
        (znode,) = await asyncio.wait_for(reading, 120)
        assert znode is not None
        assert znode.data == b"1"
        await zk.close()


async def test_close_ends_ephemeral_znodes(server: ZooKeeperServer, zk: ZooKeeperSession, chroot: str) -> None:
    other = await opened(server, chroot)
    await other.multi([Create("/e", ephemeral=True)])
    await other.close()
    assert await zk.read(["/e"]) == [None]
    with pytest.raises(SessionExpired):
        await other.read(["/e"])


# --- the same history on the twin and on the real server


def random_op(rng: random.Random) -> ZkOp:
    path = rng.choice(["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/z"])
    version = rng.choice([-1, 0, 0, 1, 2])
    data = rng.choice([b"", b"1", b"22"])
    kind = rng.randrange(8)
    if kind < 3:
        return Create(path, data, ephemeral=rng.random() < 0.2, sequential=rng.random() < 0.2)
    if kind < 5:
        return SetData(path, data, version)
    if kind < 7:
        return Delete(path, version)
    return Check(path, version)


class Transcript:
    """What one implementation answers to a history, without what must differ (ids, times)."""

    def __init__(self, zk: ZooKeeper) -> None:
        self.zk = zk
        self.lines: list[object] = []
        self.events: list[object] = []

    def watcher(self, event: WatchEvent, path: str) -> None:
        self.events.append((event.value, path))

    async def play(self, seed: int, steps: int) -> list[object]:
        rng = random.Random(seed)
        for _ in range(steps):
            kind = rng.randrange(7)
            path = rng.choice(["/a", "/b", "/a/x", "/c", "/"])
            if kind < 3:
                results = await self.zk.multi([random_op(rng) for _ in range(rng.choice([1, 1, 2, 3]))])
                self.lines.append([(r.code, r.path, r.version) for r in results if r.code is not ZkCode.ROLLED_BACK])
            elif kind == 3:
                znode = await self.zk.read_and_watch(path, self.watcher)
                self.lines.append(znode and (znode.data, znode.version, znode.ephemeral_owner == self.zk.session_id))
            elif kind == 4:
                self.lines.append(await self.zk.children_and_watch(path, self.watcher))
            elif kind == 5:
                found = await self.zk.read_and_watch_all([(path, self.watcher) for path in ("/a", "/b", "/a/x")])
                self.lines.append([z and (z.data, z.version) for z in found])
            else:
                znodes = await self.zk.read(["/a", "/b", "/a/x", "/none"])
                self.lines.append([z and (z.data, z.version) for z in znodes])
                self.lines.append(await self.zk.children(["/", "/a", "/none"]))
            # Events of one step come in the order of ZooKeeper's own tables, which is not promised.
            await self.zk.read(["/"])
            self.lines.append(sorted(map(str, self.events)))
            self.events.clear()
        return self.lines


@pytest.mark.parametrize("seed", range(8))
async def test_the_twin_answers_like_the_server(zk: ZooKeeperSession, seed: int) -> None:
    twin = MemoryZooKeeper(ZooKeeperTree(ManualClock()))
    real = await Transcript(zk).play(seed, 150)
    assert await Transcript(twin).play(seed, 150) == real
