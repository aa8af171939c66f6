"""One poll of a cluster for all that wait: 500 deferred tasks cost one poll per cluster.

A triggerer's process has one `ClusterWatch` per connection. While somebody waits it observes the cluster at every
interval, with one client in one thread; otherwise nothing runs. The client belongs to one version of the connection.
The connection is read again when somebody begins to wait, after an observation that failed, and every ten seconds (not
more often: a secrets backend may be slow and cost money). If it was edited, the next observation uses a new client.
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import ClassVar
from weakref import WeakKeyDictionary

from logyard.admin.cluster.observation import Observation, Wanted, observe
from logyard.admin.errors import ApiError, LogyardError
from logyard.admin.ports import DescribingClient
from logyard.admin.settings import ClusterSettings
from logyard.operators.hooks.cluster import ClusterHook

log = logging.getLogger(__name__)

REREAD_S = 10.0
# Airflow reports "not defined" for a deleted connection and for one that it cannot read at the moment.
UNREADABLE_S = 60.0


@dataclass(slots=True)
class _Waiter:
    """A caller that waits for the next observation: `due` is when it must begin, on the loop's clock."""

    due: float
    wants: Wanted
    future: "asyncio.Future[Observation | Exception]"


class ConnectionUnreadable(LogyardError):
    """The connection cannot be read; this says nothing about the cluster."""


class ClusterWatch:
    """The shared poll of one connection; made by `of`, used by `next_look`."""

    _watches: ClassVar["WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, ClusterWatch]]"] = WeakKeyDictionary()

    def __init__(self, logyard_conn_id: str) -> None:
        self._conn_id = logyard_conn_id
        self._waiting: list[_Waiter] = []
        self._task: asyncio.Task[None] | None = None
        self._arrived = asyncio.Event()
        self._settings: ClusterSettings | None = None
        self._read_at = float("-inf")  # on the loop's clock; -inf: read it before the next observation
        self._unread_since: float | None = None
        self.looks = 0

    @classmethod
    def of(cls, logyard_conn_id: str) -> "ClusterWatch":
        """The watch of that connection on the running event loop, for a caller that starts to wait."""
        watches = cls._watches.setdefault(asyncio.get_running_loop(), {})
        if logyard_conn_id not in watches:
            watches[logyard_conn_id] = cls(logyard_conn_id)
        watches[logyard_conn_id]._read_at = float("-inf")
        return watches[logyard_conn_id]

    @property
    def connection(self) -> ClusterSettings | None:
        """The connection as it was read last; None: not yet, or it cannot be read."""
        return self._settings

    async def next_look(self, interval_s: float, wants: Wanted | None = None) -> Observation | Exception:
        """The next observation, which begins at most `interval_s` from now, or the error instead of it."""
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop.time() + interval_s, wants or Wanted(), loop.create_future())
        self._waiting.append(waiter)
        self._arrived.set()
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._poll())
        return await waiter.future

    async def _poll(self) -> None:
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="logyard-watch")
        loop = asyncio.get_running_loop()
        client: DescribingClient | None = None
        used: ClusterSettings | None = None
        served: list[_Waiter] = []
        try:
            while self._has_waiters():
                await self._until_due()
                # A caller that comes during an observation may want more than it contains: it gets the next one.
                served, self._waiting = self._divided()
                settings = await self._read_connection()
                if client is not None and settings != used:
                    executor.submit(client.close)
                    client = None
                if isinstance(settings, Exception):
                    seen: Observation | Exception = settings
                else:
                    used, wants = settings, Wanted.of(waiter.wants for waiter in served)
                    client, seen = await loop.run_in_executor(executor, self._look, client, settings, wants)
                    self.looks += 1
                if isinstance(seen, Exception):
                    self._read_at = float("-inf")
                _hand_out(served, seen)
                await asyncio.sleep(0)  # callers that want another observation ask for it now
        except Exception as problem:
            waiting, self._waiting = [*served, *self._waiting], []
            _hand_out(waiting, problem)
        finally:
            if client is not None:
                executor.submit(client.close)
            executor.shutdown(wait=False)

    def _divided(self) -> tuple[list[_Waiter], list[_Waiter]]:
        """Those who get the next observation, and those who wait on: everybody gets it, but for those who want the
        search for hanging transactions, which asks the leaders of all partitions. They wait until one of them is due.
        """
        now = asyncio.get_running_loop().time()
        searching = [waiter for waiter in self._waiting if waiter.wants.hanging]
        if not searching or any(waiter.due <= now for waiter in searching):
            return self._waiting, []
        return [waiter for waiter in self._waiting if not waiter.wants.hanging], searching

    async def _read_connection(self) -> ClusterSettings | Exception:
        """The connection's settings, read again if that is due, else those of the last read."""
        now = asyncio.get_running_loop().time()
        if self._settings is not None and now - self._read_at < REREAD_S:
            return self._settings
        self._read_at = now
        try:
            settings = await ClusterHook(self._conn_id).asettings()
        except Exception as problem:
            self._unread_since = now if self._unread_since is None else self._unread_since
            if self._settings is not None and now - self._unread_since < UNREADABLE_S:
                log.warning("connection %s: %s; its last settings stay in use", self._conn_id, problem)
                return self._settings
            self._settings = None
            return ConnectionUnreadable(f"connection {self._conn_id}: {problem}")
        self._unread_since = None
        # All callers wait for this one thread: it reports an error soon, and tries again.
        self._settings = replace(settings, total_timeout_s=min(settings.total_timeout_s, settings.request_timeout_s))
        return self._settings

    async def _until_due(self) -> None:
        """Sleep until the first caller is due; a caller that comes meanwhile may be due sooner."""
        while (left := min(w.due for w in self._waiting) - asyncio.get_running_loop().time()) > 0:
            self._arrived.clear()
            timer = asyncio.get_running_loop().call_later(left, self._arrived.set)
            try:
                await self._arrived.wait()
            finally:
                timer.cancel()

    def _look(
        self, client: DescribingClient | None, settings: ClusterSettings, wants: Wanted
    ) -> tuple[DescribingClient | None, Observation | Exception]:
        try:
            client = client or ClusterHook.connector.cluster(settings)
            return client, observe(client, wants)
        except Exception as problem:
            log.warning("cluster %s: %s", self._conn_id, problem)
            if client is not None and not isinstance(problem, ApiError):
                # The client may be the reason: its certificate files may have changed.
                client.close()
                client = None
            return client, problem

    def _has_waiters(self) -> bool:
        self._waiting = [waiter for waiter in self._waiting if not waiter.future.done()]
        return bool(self._waiting)


def _hand_out(waiting: list[_Waiter], seen: Observation | Exception) -> None:
    for waiter in waiting:
        if not waiter.future.done():
            waiter.future.set_result(seen)
