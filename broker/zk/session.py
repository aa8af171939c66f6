"""The ZooKeeper port on kazoo (the only module of the broker that imports it). Needs ZooKeeper 3.6 or newer.

One `KazooClient` lives for exactly one ZooKeeper session, so nothing asked for in one session can be carried
out in the next. kazoo's connection thread hands every answer, watch event and session event to the event
loop with `call_soon_threadsafe`, in the order of the wire: a watch is called before the answer of a read that
was sent after the change.

A broken connection is mended inside. Watches are left again (SetWatches) before anything else is sent; reads
and multis are sent again. A multi that may have been carried out before the break is judged by
`lost_reply`; a sequential create or an unconditional set may then have been done twice. Only the end of the
session reaches the caller: as SessionExpired, where a multi that was under way may or may not have been done.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, KazooException, NoNodeError, SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import EventType, KazooState
from kazoo.retry import KazooRetry

from logyard.broker.errors import LogyardError
from logyard.broker.zk import lost_reply, wire
from logyard.broker.zk.watch_table import WatchKind, WatchTable
from logyard.broker.znodes.ops import Create, OpResult, SessionExpired, Watcher, WatchEvent, ZkCode, ZkOp, Znode
from logyard.broker.znodes.paths import ancestors

# The longest paths there are (a topic's name has 249 characters) keep both below jute.maxbuffer, 1 MiB.
READS_PER_REQUEST = 500
WATCHES_PER_REQUEST = 1000

# A server hangs up on what is larger than its jute.maxbuffer; sending that again for ever would help nobody.
JUTE_MAXBUFFER = 1_000_000
LOSSES_MAX = 3

_EVENTS = {
    EventType.CREATED: WatchEvent.CREATED,
    EventType.DELETED: WatchEvent.DELETED,
    EventType.CHANGED: WatchEvent.CHANGED,
    EventType.CHILD: WatchEvent.CHILDREN,
}

# kazoo says at DEBUG what it sends, secrets in configs included.
_kazoo_log = logging.getLogger("logyard.zookeeper.kazoo")
_kazoo_log.setLevel(logging.WARNING)


class ZooKeeperUnavailable(LogyardError):
    """No server could be reached in the time allowed."""


class _Call:
    """One request under way; kazoo reports to `set` or `set_exception`, in its connection thread."""

    def __init__(self, link: "_Link", request: wire.Request, future: asyncio.Future[Any]) -> None:
        self.link = link
        self.request = request
        self.future = future
        self.sent_before = False
        self.losses = 0

    def set(self, value: Any) -> None:
        if isinstance(self.request, wire.WatchedRead):
            self.link.arm(self.request.leaves(value), self.request.real_path)
        self.link.post(self.link.answered, self, value, None)

    def set_exception(self, problem: BaseException) -> None:
        self.link.post(self.link.answered, self, None, problem)


class _Dispatcher:
    """What kazoo calls, in its connection thread, when the watches on one (kind, path) fire."""

    def __init__(self, link: "_Link", kind: WatchKind, real_path: str) -> None:
        self.link = link
        self.kind = kind
        self.real_path = real_path

    def __call__(self, event: Any) -> None:
        if event.type in _EVENTS:  # not NONE: that one only says that the connection broke
            self.link.armed.pop((self.kind, self.real_path), None)
            self.link.post(self.link.owner.watch_fired, self.link, self.kind, _EVENTS[event.type], self.real_path)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threading handler without its two callback threads, which would lose the order of the wire."""

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)


class _Link:
    """One KazooClient and its session. `armed` and the listener belong to the connection thread."""

    def __init__(self, owner: "ZooKeeperSession", hosts: str, timeout_s: float, max_in_flight: int) -> None:
        self.owner = owner
        self.loop = asyncio.get_running_loop()
        self.is_over = False
        self.armed: dict[tuple[WatchKind, str], _Dispatcher] = {}
        self._connected_before = False
        self._free_slots = max_in_flight
        self._waiting: deque[_Call] = deque()
        self._calls: dict[_Call, None] = {}
        self.client = KazooClient(
            hosts,
            timeout=timeout_s,
            handler=_Handler(),
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=1.0),
            logger=_kazoo_log,
        )
        self.client.add_listener(self._state_changed)

    # --- on the event loop

    def submit(self, request: wire.Request) -> _Call:
        """Send, or wait for a free place among the requests in flight."""
        call = _Call(self, request, self.loop.create_future())
        if self.is_over:
            call.future.cancel()
            raise SessionExpired("the ZooKeeper session is over")
        self._calls[call] = None
        if self._free_slots:
            self._free_slots -= 1
            self.client._call(request, call)
        else:
            self._waiting.append(call)
        return call

    def answered(self, call: _Call, value: Any, problem: BaseException | None) -> None:
        if call not in self._calls:
            return  # the session ended, and the caller knows
        if isinstance(problem, ConnectionLoss):
            call.sent_before = call.sent_before or call.request.sent
            call.losses += 1
            if call.losses < LOSSES_MAX or call.request.size < JUTE_MAXBUFFER:
                self.client._call(call.request, call)
                return
            problem = LogyardError(
                f"ZooKeeper hangs up on a request of {call.request.size} bytes: raise its jute.maxbuffer"
            )
        del self._calls[call]
        if self._waiting:
            waiting = self._waiting.popleft()
            self.client._call(waiting.request, waiting)
        else:
            self._free_slots += 1
        if call.future.done():
            return  # the caller was cancelled
        if problem is None:
            self.owner.note_watch(call.request, value)
            call.future.set_result(value)
        else:
            call.future.set_exception(_translated(problem))
            call.future.exception()  # seen: of several in one pipeline only the first failure is awaited

    def end(self) -> None:
        """Fail everything under way with SessionExpired; later calls are refused."""
        self.is_over = True
        for call in self._calls:
            if not call.future.done():
                call.future.set_exception(SessionExpired("the ZooKeeper session ended; a write may have been done"))
                call.future.exception()  # seen: of several in one pipeline only the first is awaited
        self._calls.clear()
        self._waiting.clear()

    def dispose(self) -> None:
        """Say goodbye if the session lives, join the thread, close sockets. Blocks: for an executor."""
        self.client.stop()
        self.client._safe_close()
        self.client.close()

    # --- in the connection thread

    def post(self, call: Callable[..., object], *args: Any) -> None:
        try:
            self.loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            _kazoo_log.debug("the event loop is closed, dropped an answer")

    def arm(self, kind: WatchKind, real_path: str) -> None:
        dispatcher = self.armed.get((kind, real_path))
        if dispatcher is None:
            dispatcher = self.armed[kind, real_path] = _Dispatcher(self, kind, real_path)
        table = self.client._child_watchers if kind is WatchKind.CHILDREN else self.client._data_watchers
        table[real_path].add(dispatcher)

    def _state_changed(self, state: str) -> None:
        if state == KazooState.LOST:
            # Without this kazoo would open a new session on its own and run what is still queued in it.
            self.client._stopped.set()
            self.post(self.owner.session_ended, self)
        elif state == KazooState.CONNECTED:
            if self._connected_before:
                self._leave_watches_again()
            self._connected_before = True
            self.post(self.owner.connected, self, self.client._session_id)

    def _leave_watches_again(self) -> None:
        """Put SetWatches in front of everything that waits to be sent."""
        watches = list(self.armed)
        for kind, real_path in watches:
            self.arm(kind, real_path)
        for start in range(0, len(watches), WATCHES_PER_REQUEST):
            some = watches[start : start + WATCHES_PER_REQUEST]
            self.client._queue.appendleft((wire.SetWatches(self.client.last_zxid, some), None))
            self.client._connection._write_sock.send(b"\0")


class ZooKeeperSession:
    """A client of ZooKeeper that always has, or is about to have, a session.

    `connect` is Kafka's zookeeper.connect: `host:port,host:port/chroot`. `max_in_flight` is
    zookeeper.max.in.flight.requests. `on_session_lost()` is called on the event loop when a session has
    ended (expired, refused), `on_session_established(session_id)` when the next one stands; not for the first.
    Between the two every call raises SessionExpired.
    """

    def __init__(self, connect: str, *, session_timeout_ms: int = 18_000, max_in_flight: int = 10) -> None:
        hosts, slash, chroot = connect.partition("/")
        self.on_session_lost: Callable[[], None] = _nothing
        self.on_session_established: Callable[[int], None] = _nothing
        self._hosts = hosts
        self._root = f"/{chroot.strip('/')}" if slash and chroot.strip("/") else ""
        self._timeout_s = session_timeout_ms / 1000
        self._max_in_flight = max_in_flight
        self._link: _Link | None = None
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
        if self._link is None:
            self._open()
        try:
            async with asyncio.timeout(timeout_s):
                await self._connected.wait()
        except TimeoutError:
            raise ZooKeeperUnavailable(
                f"ZooKeeper at {self._hosts} does not answer within {timeout_s:g} s: check zookeeper.connect"
            ) from None
        if self._root:
            await self._create_root()

    async def close(self) -> None:
        """End the session at once, ephemeral znodes with it; no new one follows."""
        self._closed = True
        link = self._link
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
        calls = [link.submit(wire.Multi(ops, self._root)) for ops in multis]
        return [await self._settled(ops, call, session_id) for ops, call in zip(multis, calls, strict=True)]

    async def read(self, paths: Sequence[str]) -> list[Znode | None]:
        return await self._read_many(wire.GET_DATA, paths)

    async def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        return await self._read_many(wire.CHILDREN, paths)

    async def read_and_watch(self, path: str, watcher: Watcher) -> Znode | None:
        while True:
            request = wire.WatchedRead(wire.GET_DATA, path, self._root, watcher)
            try:
                znode: Znode = await self._live().submit(request).future
            except NoNodeError:
                # A watch on absence; made meanwhile, it has become a data watch, and we read again.
                absent = wire.WatchedRead(wire.EXISTS, path, self._root, watcher)
                if await self._live().submit(absent).future is None:
                    return None
            else:
                return znode

    async def children_and_watch(self, path: str, watcher: Watcher) -> list[str] | None:
        try:
            names: list[str] = (
                await self._live().submit(wire.WatchedRead(wire.CHILDREN, path, self._root, watcher)).future
            )
        except NoNodeError:
            return None
        return names

    # --- called by the link, on the event loop

    def note_watch(self, request: wire.Request, value: Any) -> None:
        if isinstance(request, wire.WatchedRead):
            self._watchers.add(request.leaves(value), request.path, request.caller)

    def watch_fired(self, link: _Link, kind: WatchKind, event: WatchEvent, real_path: str) -> None:
        if link is self._link and not link.is_over:
            path = real_path.removeprefix(self._root) or "/"
            for watcher in self._watchers.take(kind, path):
                watcher(event, path)

    def connected(self, link: _Link, session_id: int) -> None:
        if link is not self._link or link.is_over or session_id == self._session_id:
            return
        self._session_id = session_id
        self._connected.set()
        if self._first:
            self._first = False
        else:
            self.on_session_established(session_id)

    def session_ended(self, link: _Link) -> None:
        if link.is_over:
            return
        link.end()
        self._watchers.clear()
        self._connected.clear()
        disposal = link.loop.run_in_executor(None, link.dispose)
        self._tasks.add(disposal)
        disposal.add_done_callback(self._tasks.discard)
        if not self._closed:
            if not self._first:
                self.on_session_lost()
            self._open()

    # --- inside

    def _open(self) -> None:
        self._link = _Link(self, self._hosts, self._timeout_s, self._max_in_flight)
        self._link.client.start_async()

    def _live(self) -> _Link:
        """The link of a session that stands: between two sessions there is none to speak in."""
        if self._link is None or not self._connected.is_set():
            raise SessionExpired("there is no ZooKeeper session at the moment")
        return self._link

    async def _settled(self, ops: Sequence[ZkOp], call: _Call, session_id: int) -> list[OpResult]:
        results: list[OpResult] = await call.future
        if call.sent_before and not all(result.ok for result in results):
            paths = lost_reply.paths_to_read(ops)
            found = dict(zip(paths, await self.read(paths), strict=True))
            return lost_reply.outcome(ops, found, session_id) or results
        return results

    async def _read_many(self, kind: int, paths: Sequence[str]) -> list[Any]:
        link = self._live()
        calls = [
            link.submit(wire.MultiRead(kind, paths[start : start + READS_PER_REQUEST], self._root))
            for start in range(0, len(paths), READS_PER_REQUEST)
        ]
        answers: list[Any] = []
        for call in calls:
            answers += await call.future
        return answers

    async def _create_root(self) -> None:
        for path in [*ancestors(self._root), self._root]:
            call = self._live().submit(wire.Multi([Create(path)]))
            (result,) = await call.future
            if result.code not in (ZkCode.OK, ZkCode.NODE_EXISTS):
                raise LogyardError(f"ZooKeeper at {self._hosts}: the chroot {path} cannot be made: {result.code.value}")


def _translated(problem: BaseException) -> BaseException:
    if isinstance(problem, SessionExpiredError):  # ConnectionClosedError is one
        return SessionExpired("the ZooKeeper session ended; a write may have been done")
    if isinstance(problem, KazooException) and not isinstance(problem, NoNodeError):
        return LogyardError(f"ZooKeeper refuses a request: {type(problem).__name__}")
    return problem


def _nothing(*_: object) -> None:
    return None
