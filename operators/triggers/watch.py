"""One look at a cluster for everybody who waits: 500 deferred tasks cost one poll per cluster.

A `ClusterWatch` lives per connection in a triggerer's process. While somebody listens it takes a snapshot every
interval, with one client in one thread; nothing runs while nobody does.
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

from logyard.admin.ports import ClusterClient
from logyard.admin.settings import ClusterSettings
from logyard.admin.snapshot import ClusterSnapshot
from logyard.operators.hooks.cluster import ClusterHook

log = logging.getLogger(__name__)

Look = ClusterSnapshot | Exception


class ClusterWatch:
    """The shared poll of one connection; made by `of`, used by `next_look`."""

    _watches: ClassVar[dict[tuple[str, int], "ClusterWatch"]] = {}

    def __init__(self, logyard_conn_id: str) -> None:
        self._hook = ClusterHook(logyard_conn_id)
        self._waiting: list[tuple[float, asyncio.Future[Look]]] = []
        self._task: asyncio.Task[None] | None = None
        self.looks = 0

    @classmethod
    def of(cls, logyard_conn_id: str) -> "ClusterWatch":
        """The watch of that connection on the running event loop."""
        key = (logyard_conn_id, id(asyncio.get_running_loop()))
        return cls._watches.setdefault(key, cls(logyard_conn_id))

    async def next_look(self, interval_s: float) -> Look:
        """Wait for the next look, which is at most `interval_s` away: a snapshot, or why there is none."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Look] = loop.create_future()
        self._waiting.append((interval_s, future))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._poll())
        return await future

    async def _poll(self) -> None:
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="logyard-watch")
        loop = asyncio.get_running_loop()
        client: ClusterClient | None = None
        try:
            settings = await self._hook.asettings()
            while self._anybody():
                await asyncio.sleep(min(interval for interval, _ in self._waiting))
                client, look = await loop.run_in_executor(executor, self._look, client, settings)
                self.looks += 1
                self._hand_out(look)
                await asyncio.sleep(0)  # whoever wants another look says so now
        except Exception as problem:
            self._hand_out(problem)
        finally:
            if client is not None:
                executor.submit(client.close)
            executor.shutdown(wait=False)

    def _look(self, client: ClusterClient | None, settings: ClusterSettings) -> tuple[ClusterClient | None, Look]:
        try:
            client = client or self._hook.connector.cluster(settings)
            return client, client.snapshot(reassignments=True)
        except Exception as problem:
            log.warning("cluster %s: %s", self._hook.logyard_conn_id, problem)
            return client, problem

    def _anybody(self) -> bool:
        self._waiting = [(interval, future) for interval, future in self._waiting if not future.done()]
        return bool(self._waiting)

    def _hand_out(self, look: Look) -> None:
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_result(look)
