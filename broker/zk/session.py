"""The ZooKeeper port on a real server, 3.6 or newer; each session has a `Link`.

If a connection breaks, `lost_reply` finds out whether a multi was carried out (a sequential create or an unconditional
set may be done twice). Callers notice only the end of the session, as SessionExpired: then a multi in flight may or may
not have been carried out.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from logyard.broker.errors import LogyardError
from logyard.broker.zk import lost_reply, requests
from logyard.broker.zk.access import ANYBODY, Access
from logyard.broker.zk.kazoo_access import ConnectionLog
from logyard.broker.zk.link import WATCHES_PER_REQUEST, Call, LeftWatches, Link, NoZnode
from logyard.broker.zk.watch_table import WatchKind, WatchTable
from logyard.broker.znodes import permissions
from logyard.broker.znodes.ops import Create, OpResult, SessionExpired, Watcher, WatchEvent, ZkCode, ZkOp, Znode
from logyard.broker.znodes.paths import ancestors

# After a refused log-in; Kafka waits as long.
REFUSED_PAUSE_S = 1.0


class ZooKeeperUnavailable(LogyardError):
    """No server could be reached in time."""


class ZooKeeperSession:
    """A client of ZooKeeper, which opens a new session when one has ended.

    `connect` is Kafka's zookeeper.connect: `host:port,host:port/chroot`. `max_in_flight` is
    zookeeper.max.in.flight.requests. `on_session_lost()` is called on the event loop when a session has ended (expired,
    refused), `on_session_established(session_id)` when the next one is open; not for the first. Between the two all
    calls raise SessionExpired. `access` says how to connect and log in; `set_acl` is Kafka's zookeeper.set.acl: what is
    created belongs to the identity of `access`.
    """

    def __init__(
        self,
        connect: str,
        *,
        session_timeout_ms: int = 18_000,
        max_in_flight: int = 10,
        access: Access = ANYBODY,
        set_acl: bool = False,
    ) -> None:
        hosts, slash, chroot = connect.partition("/")
        self.on_session_lost: Callable[[], None] = _nothing
        self.on_session_established: Callable[[int], None] = _nothing
        self._hosts = hosts
        self._root = f"/{chroot.strip('/')}" if slash and chroot.strip("/") else ""
        self._timeout_s = session_timeout_ms / 1000
        self._max_in_flight = max_in_flight
        self._access = access
        self._acls = permissions.secure_acls if set_acl else permissions.open_acls
        self.link: Link | None = None
        self._log = ConnectionLog()
        self._session_id = 0
        self._first = True
        self._closed = False
        self._connected = asyncio.Event()
        self._watchers = WatchTable()
        self._tasks: set[asyncio.Future[Any]] = set()

    @property
    def session_id(self) -> int:
        return self._session_id

    async def wait_connected(self, timeout_s: float) -> None:
        """Open the first session and create the chroot; raises ZooKeeperUnavailable after `timeout_s` seconds."""
        if self.link is None:
            self._open()
        try:
            async with asyncio.timeout(timeout_s):
                await self._connected.wait()
        except TimeoutError:
            raise ZooKeeperUnavailable(
                f"ZooKeeper at {self._hosts} does not answer within {timeout_s:g} s: {self._log.reason(self._access)}"
            ) from None
        if self._root:
            await self._create_root()

    async def close(self) -> None:
        """End the session, which deletes its ephemeral znodes; no new one follows."""
        self._closed = True
        link = self.link
        if link is not None:
            link.end()
            await link.loop.run_in_executor(None, link.dispose)
        if self._tasks:
            await asyncio.wait(self._tasks)

    # --- the port

    async def multi(self, ops: Sequence[ZkOp]) -> list[OpResult]:
        return (await self.pipeline([ops]))[0]

    async def pipeline(self, multis: Sequence[Sequence[ZkOp]]) -> list[list[OpResult]]:
        session_id = self._session_id
        link = self._live()
        calls = [link.submit(requests.Multi(ops, self._root, self._acls)) for ops in multis]
        return [await self._settled(ops, call, session_id) for ops, call in zip(multis, calls, strict=True)]

    async def read(self, paths: Sequence[str]) -> list[Znode | None]:
        return await self._read_many(requests.GET_DATA, paths)

    async def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        return await self._read_many(requests.CHILDREN, paths)

    async def read_and_watch(self, path: str, watcher: Watcher) -> Znode | None:
        while True:
            request = requests.WatchedRead(requests.GET_DATA, path, self._root, watcher)
            try:
                znode: Znode = await self._live().submit(request).future
            except NoZnode:
                # Set a watch for the creation. If the znode was created meanwhile, read again.
                absent = requests.WatchedRead(requests.EXISTS, path, self._root, watcher)
                if await self._live().submit(absent).future is None:
                    return None
            else:
                return znode

    async def read_and_watch_all(self, targets: Sequence[tuple[str, Watcher]]) -> list[Znode | None]:
        link = self._live()
        # The watches fire for all changes after this moment, even those before the read.
        zxid = link.client.last_zxid
        znodes = await self.read([path for path, _ in targets])
        if link.is_over:
            raise SessionExpired("the ZooKeeper session ended while watches were set")
        wanted = []
        for (path, watcher), znode in zip(targets, znodes, strict=True):
            kind = WatchKind.ABSENT if znode is None else WatchKind.DATA
            wanted.append((kind, requests.real_path(path, self._root)))
            self._watchers.add(kind, path, watcher)
        calls = [
            link.submit(LeftWatches(link, zxid, wanted[start : start + WATCHES_PER_REQUEST]))
            for start in range(0, len(wanted), WATCHES_PER_REQUEST)
        ]
        for call in calls:
            await call.future
        return znodes

    async def children_and_watch(self, path: str, watcher: Watcher) -> list[str] | None:
        try:
            names: list[str] = (
                await self._live().submit(requests.WatchedRead(requests.CHILDREN, path, self._root, watcher)).future
            )
        except NoZnode:
            return None
        return names

    # --- called by the link, on the event loop

    def note_watch(self, request: requests.Request, value: Any) -> None:
        if isinstance(request, requests.WatchedRead):
            self._watchers.add(request.leaves(value), request.path, request.caller)

    def watch_fired(self, link: Link, kind: WatchKind, event: WatchEvent, real_path: str) -> None:
        if link is self.link and not link.is_over:
            path = real_path.removeprefix(self._root) or "/"
            for watcher in self._watchers.take(kind, path):
                watcher(event, path)

    def connected(self, link: Link, session_id: int) -> None:
        if link is not self.link or link.is_over or session_id == self._session_id:
            return
        self._session_id = session_id
        self._connected.set()
        if self._first:
            self._first = False
        else:
            self.on_session_established(session_id)

    def session_ended(self, link: Link) -> None:
        if link.is_over:
            return
        link.end()
        self._watchers.clear()
        was_connected = self._connected.is_set()
        self._connected.clear()
        disposal = link.loop.run_in_executor(None, link.dispose)
        self._tasks.add(disposal)
        disposal.add_done_callback(self._tasks.discard)
        if not self._closed:
            # First: whatever comes of the call, there is a next session.
            if link.refused:
                link.loop.call_later(REFUSED_PAUSE_S, self._open)
            else:
                self._open()
            if was_connected:
                self.on_session_lost()

    # --- inside

    def _open(self) -> None:
        if self._closed:
            return
        self.link = Link(self, self._hosts, self._timeout_s, self._max_in_flight, self._access, self._log)
        self.link.client.start_async()

    def _live(self) -> Link:
        """The link of a session that stands: between two sessions there is none to speak in."""
        if self.link is None or not self._connected.is_set():
            raise SessionExpired("there is no ZooKeeper session at the moment")
        return self.link

    async def _settled(self, ops: Sequence[ZkOp], call: Call, session_id: int) -> list[OpResult]:
        results: list[OpResult] = await call.future
        if call.sent_before and not all(result.ok for result in results):
            paths = lost_reply.paths_to_read(ops)
            found = dict(zip(paths, await self.read(paths), strict=True))
            return lost_reply.outcome(ops, found, session_id) or results
        return results

    async def _read_many(self, kind: int, paths: Sequence[str]) -> list[Any]:
        link = self._live()
        portions = requests.read_portions(paths)
        calls = [link.submit(requests.MultiRead(kind, portion, self._root)) for portion in portions]
        answers: list[Any] = []
        for call in calls:
            answers += await call.future
        return answers

    async def _create_root(self) -> None:
        for path in [*ancestors(self._root), self._root]:
            call = self._live().submit(requests.Multi([Create(path)], acls=self._acls))
            (result,) = await call.future
            if result.code not in (ZkCode.OK, ZkCode.NODE_EXISTS):
                raise LogyardError(f"ZooKeeper at {self._hosts}: cannot create the chroot {path}: {result.code.value}")


def _nothing(*_: object) -> None:
    return None
