"""One ZooKeeper session on kazoo; in the broker only this module and `kazoo_access` import it.

A `KazooClient` has one ZooKeeper session, so a request of one session is never carried out in the next. kazoo's
connection thread passes answers, watch events and session events to the event loop (`call_soon_threadsafe`) in the
order in which they arrive: a watch is called before the answer of a read that was sent after the change.

A broken connection is made again by the link. It first sets the watches again (SetWatches), then sends reads and multis
again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, KazooException, NoNodeError, SessionExpiredError
from kazoo.protocol.states import EventType, KazooState, KeeperState
from kazoo.retry import KazooRetry

from logyard.broker.errors import LogyardError
from logyard.broker.zk import requests
from logyard.broker.zk.access import Access
from logyard.broker.zk.kazoo_access import AccessHandler, ConnectionLog, log_in_with
from logyard.broker.zk.watch_table import WatchKind
from logyard.broker.znodes.ops import SessionExpired, WatchEvent

# With the longest paths (a topic's name has 249 characters) a request is below jute.maxbuffer, 1 MiB.
WATCHES_PER_REQUEST = 1000

# A server closes the connection on a request above its jute.maxbuffer. Such a request is not sent for ever.
JUTE_MAXBUFFER = 1_000_000
LOSSES_MAX = 3

_EVENTS = {
    EventType.CREATED: WatchEvent.CREATED,
    EventType.DELETED: WatchEvent.DELETED,
    EventType.CHANGED: WatchEvent.CHANGED,
    EventType.CHILD: WatchEvent.CHILDREN,
}


class NoZnode(LogyardError):
    """A read with a watch has found no znode."""


class Owner(Protocol):
    """The owner of a link, which calls it on the event loop."""

    def note_watch(self, request: requests.Request, value: Any) -> None: ...

    def watch_fired(self, link: "Link", kind: WatchKind, event: WatchEvent, real_path: str) -> None: ...

    def connected(self, link: "Link", session_id: int) -> None: ...

    def session_ended(self, link: "Link") -> None: ...


class Call:
    """One request in flight; kazoo calls `set` or `set_exception` in its connection thread."""

    def __init__(self, link: "Link", request: requests.Request, future: asyncio.Future[Any]) -> None:
        self.link = link
        self.request = request
        self.future = future
        self.sent_before = False
        self.losses = 0

    def set(self, value: Any) -> None:
        if isinstance(self.request, requests.WatchedRead):
            self.link.arm(self.request.leaves(value), self.request.real_path)
        self.link.post(self.link.answered, self, value, None)

    def set_exception(self, problem: BaseException) -> None:
        self.link.post(self.link.answered, self, None, problem)


class Dispatcher:
    """Is called by kazoo, in its connection thread, when the watches on one (kind, path) fire."""

    def __init__(self, link: "Link", kind: WatchKind, real_path: str) -> None:
        self.link = link
        self.kind = kind
        self.real_path = real_path

    def __call__(self, event: Any) -> None:
        if event.type in _EVENTS:  # NONE, that the connection broke, is not among them
            self.link.armed.pop((self.kind, self.real_path), None)
            self.link.post(self.link.owner.watch_fired, self.link, self.kind, _EVENTS[event.type], self.real_path)


class LeftWatches(requests.SetWatches):
    """SetWatches for new watches. They are registered with kazoo before it is sent: they may fire before the answer."""

    def __init__(self, link: "Link", zxid: int, watches: Sequence[tuple[WatchKind, str]]) -> None:
        super().__init__(zxid, watches)
        self._link = link
        self._new = watches

    def body(self) -> bytes:
        for kind, real_path in self._new:
            self._link.arm(kind, real_path)
        return super().body()


class _Handler(AccessHandler):
    """kazoo's threading handler without its two callback threads, which would change the order of events."""

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)


class Link:
    """One KazooClient and its session. `armed` and the listener belong to the connection thread.

    `refused`: the session has ended because ZooKeeper refuses the log-in.
    """

    def __init__(
        self, owner: Owner, hosts: str, timeout_s: float, max_in_flight: int, access: Access, log: ConnectionLog
    ) -> None:
        self.owner = owner
        self.loop = asyncio.get_running_loop()
        self.is_over = False
        self.refused = False
        self.armed: dict[tuple[WatchKind, str], Dispatcher] = {}
        self._log = log
        self._connected_before = False
        self._free_slots = max_in_flight
        self._waiting: deque[Call] = deque()
        self._calls: dict[Call, None] = {}
        self.client = KazooClient(
            hosts,
            timeout=timeout_s,
            handler=_Handler(access),
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=1.0),
            logger=log,
        )
        self._logs_in = access.login is not None
        if access.login is not None:
            log_in_with(self.client, access.login, self._connected)
        self.client.add_listener(self._state_changed)

    # --- on the event loop

    def submit(self, request: requests.Request) -> Call:
        """Send a request, or queue it while too many are in flight."""
        call = Call(self, request, self.loop.create_future())
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

    def answered(self, call: Call, value: Any, problem: BaseException | None) -> None:
        if call not in self._calls:
            return  # the session has ended, and the caller has SessionExpired
        if isinstance(problem, ConnectionLoss):
            call.sent_before = call.sent_before or call.request.sent
            call.losses += 1
            if call.losses < LOSSES_MAX or call.request.size < JUTE_MAXBUFFER:
                self.client._call(call.request, call)
                return
            problem = LogyardError(
                f"ZooKeeper closes the connection on a request of {call.request.size} bytes: raise jute.maxbuffer"
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
            call.future.exception()  # marks it as retrieved: in a pipeline only the first failure is awaited

    def end(self) -> None:
        """End all requests in flight with SessionExpired; later requests are refused."""
        self.is_over = True
        for call in self._calls:
            if not call.future.done():
                call.future.set_exception(SessionExpired("the ZooKeeper session ended; a write may have been done"))
                call.future.exception()  # marks it as retrieved: in a pipeline only the first failure is awaited
        self._calls.clear()
        self._waiting.clear()

    def dispose(self) -> None:
        """End the session, join the thread, close sockets. It blocks: call it in a thread."""
        self.client.stop()
        self.client._safe_close()
        self.client.close()

    # --- in the connection thread

    def post(self, call: Callable[..., object], *args: Any) -> None:
        try:
            self.loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            self._log.debug("the event loop is closed, dropped an answer")

    def arm(self, kind: WatchKind, real_path: str) -> None:
        dispatcher = self.armed.get((kind, real_path))
        if dispatcher is None:
            dispatcher = self.armed[kind, real_path] = Dispatcher(self, kind, real_path)
        table = self.client._child_watchers if kind is WatchKind.CHILDREN else self.client._data_watchers
        table[real_path].add(dispatcher)

    def _state_changed(self, state: str) -> None:
        if state == KazooState.LOST:
            # Otherwise kazoo would open a new session, and carry out in it what is still queued.
            self.client._stopped.set()
            self.refused = self.client._state == KeeperState.AUTH_FAILED
            self.post(self.owner.session_ended, self)
        elif state == KazooState.CONNECTED and not self._logs_in:
            self._connected()

    def _connected(self) -> None:
        """The connection stands, and has logged in if it has to."""
        self._log.forget()
        if self._connected_before:
            self._leave_watches_again()
        self._connected_before = True
        self.post(self.owner.connected, self, self.client._session_id)

    def _leave_watches_again(self) -> None:
        """Put SetWatches before all requests that wait to be sent."""
        watches = list(self.armed)
        for kind, real_path in watches:
            self.arm(kind, real_path)
        for start in range(0, len(watches), WATCHES_PER_REQUEST):
            some = watches[start : start + WATCHES_PER_REQUEST]
            self.client._queue.appendleft((requests.SetWatches(self.client.last_zxid, some), None))
            self.client._connection._write_sock.send(b"\0")


def _translated(problem: BaseException) -> BaseException:
    if isinstance(problem, SessionExpiredError):  # ConnectionClosedError is one
        return SessionExpired("the ZooKeeper session ended; a write may have been done")
    if isinstance(problem, NoNodeError):
        return NoZnode("there is no such znode")
    if isinstance(problem, KazooException):
        return LogyardError(f"ZooKeeper refuses a request: {type(problem).__name__}")
    return problem
