"""One look at a cluster for everybody who waits: 500 deferred tasks cost one poll per cluster.

A `ClusterWatch` lives per connection in a triggerer's process. While somebody listens it takes a look every
interval, with one client in one thread; nothing runs while nobody does.
"""

import asyncio
import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import ClassVar

from logyard.admin.looks import Look, Wants, take
from logyard.admin.ports import ClusterClient
from logyard.admin.settings import ClusterSettings
from logyard.operators.hooks.cluster import ClusterHook

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Waiter:
    """One who waits for the next look: until then on the loop's clock at most, and wanting that in it."""

    due: float
    wants: Wants
    future: "asyncio.Future[Look | Exception]"


class ClusterWatch:
    """The shared poll of one connection; made by `of`, used by `next_look`."""

    _watches: ClassVar[dict[tuple[str, int], "ClusterWatch"]] = {}

    def __init__(self, logyard_conn_id: str) -> None:
        self._hook = ClusterHook(logyard_conn_id)
        self._waiting: list[_Waiter] = []
        self._task: asyncio.Task[None] | None = None
        self._arrived = asyncio.Event()
        self.looks = 0

    @classmethod
    def of(cls, logyard_conn_id: str) -> "ClusterWatch":
        """The watch of that connection on the running event loop."""
        key = (logyard_conn_id, id(asyncio.get_running_loop()))
        if key not in cls._watches:
            cls._watches[key] = cls(logyard_conn_id)
        return cls._watches[key]

    async def next_look(self, interval_s: float, wants: Wants | None = None) -> Look | Exception:
        """Wait for the next look, which begins at most `interval_s` from now: what was seen, or why nothing was."""
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop.time() + interval_s, wants or Wants(), loop.create_future())
        self._waiting.append(waiter)
        self._arrived.set()
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._poll())
        return await waiter.future

    async def _poll(self) -> None:
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="logyard-watch")
        loop = asyncio.get_running_loop()
        client: ClusterClient | None = None
        try:
            # The connection is read anew whenever somebody begins to wait: it may have been edited.
            settings = await ClusterHook(self._hook.logyard_conn_id).asettings()
            # Everybody waits for this one thread: better to say soon that nobody answers, and to look again.
            settings = replace(settings, total_timeout_s=min(settings.total_timeout_s, settings.request_timeout_s))
            while self._anybody():
                await self._until_due()
                # Whoever comes while the look is under way may want more than it holds, and waits for the next one.
                served, self._waiting = self._waiting, []
                wants = Wants.of(waiter.wants for waiter in served)
                client, seen = await loop.run_in_executor(executor, self._look, client, settings, wants)
                self.looks += 1
                _hand_out(served, seen)
                await asyncio.sleep(0)  # whoever wants another look says so now
        except Exception as problem:
            served, self._waiting = self._waiting, []
            _hand_out(served, problem)
        finally:
            if client is not None:
                executor.submit(client.close)
            executor.shutdown(wait=False)

    async def _until_due(self) -> None:
        """Sleep until the first of them is due; who comes meanwhile may be due sooner."""
        while (left := min(w.due for w in self._waiting) - asyncio.get_running_loop().time()) > 0:
            self._arrived.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._arrived.wait()

    def _look(
        self, client: ClusterClient | None, settings: ClusterSettings, wants: Wants
    ) -> tuple[ClusterClient | None, Look | Exception]:
        try:
            client = client or self._hook.connector.cluster(settings)
            return client, take(client, wants)
        except Exception as problem:
            log.warning("cluster %s: %s", self._hook.logyard_conn_id, problem)
            return client, problem

    def _anybody(self) -> bool:
        self._waiting = [waiter for waiter in self._waiting if not waiter.future.done()]
        return bool(self._waiting)


def _hand_out(waiting: list[_Waiter], seen: Look | Exception) -> None:
    for waiter in waiting:
        if not waiter.future.done():
            waiter.future.set_result(seen)
