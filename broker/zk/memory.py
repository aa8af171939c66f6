"""ZooKeeper in memory: the port's twin, for tests and the simulator. Many sessions share one `ZooKeeperTree`.

Requests go to the tree in one queue, answers and watch events come back in another; both keep their order, so a watch
is called before the answer of a read that was sent after the change. `latency` returns the seconds for each way (0: the
next turn of the loop). Faults: `tree.expire(session)`, `lose_replies`, `disconnect` and `reconnect`, `crash`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from logyard.broker.zk import lost_reply
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.zk.watch_table import WatchKind, WatchTable
from logyard.broker.znodes.ops import OpResult, SessionExpired, Watcher, WatchEvent, ZkOp, Znode

T = TypeVar("T")


class _Request(Generic[T]):
    """One request in flight: the tree's work, and what the client does with the answer."""

    def __init__(self, work: Callable[[int], T], answered: Callable[[T], None] | None = None) -> None:
        self.work = work
        self.answered = answered
        self.is_write = False
        self.sent_before = False
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()


def _no_latency() -> float:
    return 0.0


class MemoryZooKeeper:
    """One client of the tree, with one session after the other.

    `on_session_lost()` and `on_session_established(session_id)` are called on the loop; the latter not for the first
    session. Between the two all calls raise SessionExpired. `session` is the id of the first session.
    """

    def __init__(
        self,
        tree: ZooKeeperTree,
        session: int | None = None,
        *,
        latency: Callable[[], float] = _no_latency,
        reconnect_s: float = 0.0,
    ) -> None:
        self.tree = tree
        self.on_session_lost: Callable[[], None] = _nothing
        self.on_session_established: Callable[[int], None] = _nothing
        self._latency = latency
        self._reconnect_s = reconnect_s
        self._session_id = tree.open_session(self, session)
        self._alive = True
        self._closed = False
        self._connected = True
        self._replies_to_lose = 0
        self._zxid = 0  # of the last answer
        self._watchers = WatchTable()
        self._outbound: deque[_Request[Any]] = deque()
        self._inbound: deque[Callable[[], None] | tuple[_Request[Any], Any, int]] = deque()

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def is_alive(self) -> bool:
        """Whether this client has not heard that its session ended."""
        return self._alive

    # --- the port

    async def multi(self, ops: Sequence[ZkOp]) -> list[OpResult]:
        return (await self.pipeline([ops]))[0]

    async def pipeline(self, multis: Sequence[Sequence[ZkOp]]) -> list[list[OpResult]]:
        session_id = self._session_id
        sent = [(ops, self._write(ops)) for ops in multis]
        answers = []
        for ops, request in sent:
            results = await request.future
            if request.sent_before and not all(result.ok for result in results):
                paths = lost_reply.paths_to_read(ops)
                found = dict(zip(paths, await self.read(paths), strict=True))
                results = lost_reply.outcome(ops, found, session_id) or results
            answers.append(results)
        return answers

    async def read(self, paths: Sequence[str]) -> list[Znode | None]:
        return await self._send(_Request(lambda _: [self.tree.read(path) for path in paths]))

    async def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        return await self._send(_Request(lambda _: [self.tree.children(path) for path in paths]))

    async def read_and_watch(self, path: str, watcher: Watcher) -> Znode | None:
        def work(session_id: int) -> Znode | None:
            znode = self.tree.read(path)
            self.tree.watch(session_id, WatchKind.ABSENT if znode is None else WatchKind.DATA, path)
            return znode

        def answered(znode: Znode | None) -> None:
            self._watchers.add(WatchKind.ABSENT if znode is None else WatchKind.DATA, path, watcher)

        return await self._send(_Request(work, answered))

    async def read_and_watch_all(self, targets: Sequence[tuple[str, Watcher]]) -> list[Znode | None]:
        zxid, session_id = self._zxid, self._session_id
        znodes = await self.read([path for path, _ in targets])
        if not self._alive or session_id != self._session_id:
            raise SessionExpired(f"ZooKeeper session 0x{session_id:x} is over")
        wanted = []
        for (path, watcher), znode in zip(targets, znodes, strict=True):
            kind = WatchKind.ABSENT if znode is None else WatchKind.DATA
            wanted.append((kind, path))
            self._watchers.add(kind, path, watcher)
        await self._send(_Request(lambda session_id: self.tree.leave_watches(session_id, zxid, wanted)))
        return znodes

    async def children_and_watch(self, path: str, watcher: Watcher) -> list[str] | None:
        def work(session_id: int) -> list[str] | None:
            names = self.tree.children(path)
            if names is not None:
                self.tree.watch(session_id, WatchKind.CHILDREN, path)
            return names

        def answered(names: list[str] | None) -> None:
            if names is not None:
                self._watchers.add(WatchKind.CHILDREN, path, watcher)

        return await self._send(_Request(work, answered))

    async def wait_connected(self, timeout_s: float) -> None:
        """Return at once: the first session is open from the start."""

    async def close(self) -> None:
        """End the session as a clean shutdown does: its ephemeral znodes are deleted, and no new session follows."""
        self._closed = True
        self.tree.close_session(self._session_id)
        self._lose()

    # --- faults

    def lose_replies(self, count: int = 1) -> None:
        """Carry out the next `count` writes, but break the connection before their answers arrive."""
        self._replies_to_lose += count

    def disconnect(self) -> None:
        """Break the connection: answers on their way are lost, watch events wait."""
        self._connected = False
        kept: deque[Callable[[], None] | tuple[_Request[Any], Any, int]] = deque()
        again: list[_Request[Any]] = []
        for item in self._inbound:
            if isinstance(item, tuple):
                item[0].sent_before = True
                again.append(item[0])
            else:
                kept.append(item)
        self._inbound = kept
        self._outbound.extendleft(reversed(again))

    def reconnect(self) -> None:
        """Make the connection again; only now the client learns that its session has ended meanwhile."""
        self._connected = True
        if not self.tree.is_open(self._session_id):
            self._receive(self._lose)
        for _ in self._outbound:
            self._hop(self._arrive)
        for _ in self._inbound:
            self._hop(self._deliver)

    def crash(self) -> None:
        """Stop as a killed process does: the session stays until `tree.expire` ends it."""
        self._closed = True
        self._alive = False
        self._connected = False
        self._outbound.clear()
        self._inbound.clear()

    # --- called by the tree

    def watch_fired(self, kind: WatchKind, event: WatchEvent, path: str) -> None:
        session_id = self._session_id

        def deliver() -> None:
            if self._alive and session_id == self._session_id:
                for watcher in self._watchers.take(kind, path):
                    watcher(event, path)

        self._receive(deliver)

    def session_expired(self) -> None:
        if self._connected:
            self._receive(self._lose)

    # --- the two queues

    def _write(self, ops: Sequence[ZkOp]) -> _Request[list[OpResult]]:
        request: _Request[list[OpResult]] = _Request(lambda session_id: self.tree.multi(session_id, ops))
        request.is_write = True
        self._submit(request)
        return request

    async def _send(self, request: _Request[T]) -> T:
        self._submit(request)
        return await request.future

    def _submit(self, request: _Request[Any]) -> None:
        if not self._alive:
            request.future.cancel()
            raise SessionExpired(f"ZooKeeper session 0x{self._session_id:x} is over")
        self._outbound.append(request)
        if self._connected:
            self._hop(self._arrive)

    def _arrive(self) -> None:
        """Carry out the oldest request in the tree."""
        if not self._connected or not self._outbound:
            return
        if not self.tree.is_open(self._session_id):
            return  # the client is about to learn of it, which ends all its requests
        request = self._outbound.popleft()
        answer = request.work(self._session_id)
        if request.is_write and self._replies_to_lose:
            self._replies_to_lose -= 1
            request.sent_before = True
            self._outbound.appendleft(request)
            self._hop(self._arrive)
        else:
            self._receive((request, answer, self.tree.zxid))

    def _receive(self, item: Callable[[], None] | tuple[_Request[Any], Any, int]) -> None:
        if self._closed and not self._connected:
            return
        self._inbound.append(item)
        if self._connected:
            self._hop(self._deliver)

    def _deliver(self) -> None:
        """Give the oldest answer or event to the client."""
        if not self._connected or not self._inbound:
            return
        item = self._inbound.popleft()
        if not isinstance(item, tuple):
            item()
            return
        request, answer, self._zxid = item
        if not request.future.done():
            if request.answered is not None:
                request.answered(answer)
            request.future.set_result(answer)

    def _hop(self, step: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        delay = self._latency()
        if delay:
            loop.call_later(delay, step)
        else:
            loop.call_soon(step)

    def _lose(self) -> None:
        if not self._alive:
            return
        self._alive = False
        self._watchers.clear()
        requests = [item[0] for item in self._inbound if isinstance(item, tuple)] + list(self._outbound)
        self._inbound.clear()
        self._outbound.clear()
        for request in requests:
            if not request.future.done():
                request.future.set_exception(SessionExpired(f"ZooKeeper session 0x{self._session_id:x} expired"))
                request.future.exception()  # marks it as retrieved: in a pipeline only the first failure is awaited
        if not self._closed:
            asyncio.get_running_loop().call_later(self._reconnect_s, self._establish)
            self.on_session_lost()

    def _establish(self) -> None:
        if self._closed:
            return
        self._session_id = self.tree.open_session(self)
        self._alive = True
        self._zxid = 0
        self.on_session_established(self._session_id)


def _nothing(*_: object) -> None:
    return None
