"""Following znodes by watches that are left anew in every session."""

import asyncio
from functools import partial

from logyard.broker import tasks
from logyard.broker.znodes.ops import SessionExpired, ZooKeeper


class SessionWatch:
    """Loads something and leaves a watch, then looks again whenever the watch was called, in a task of its own.

    Call `start` after every new session: watches of the old one are gone. Where a session may have ended unheard, call
    `renew`. Subclasses say what is loaded; both methods leave the watch before they read, and set `dirty` in it.
    """

    name = "watch"

    def __init__(self, zk: ZooKeeper) -> None:
        self._zk = zk
        self._task: asyncio.Task[None] | None = None
        self._session_id = 0  # in which the watch was left
        self._starting = asyncio.Lock()

    async def _load(self, dirty: asyncio.Event) -> None:
        """Read everything, at the beginning of a session. Raises SessionExpired."""
        raise NotImplementedError

    async def _look_again(self, dirty: asyncio.Event) -> None:
        """Read what has changed. Raises SessionExpired."""
        raise NotImplementedError

    async def start(self) -> None:
        """Load, then keep following. Raises SessionExpired."""
        async with self._starting:
            await self.stop()
            self._session_id = self._zk.session_id
            dirty = asyncio.Event()
            await self._load(dirty)
            self._task = tasks.keep(self.name, partial(self._follow, dirty))

    async def renew(self) -> None:
        """Start again where the session is not any more the one that is followed in. Raises SessionExpired."""
        if self._session_id != self._zk.session_id:
            await self.start()

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self, dirty: asyncio.Event) -> None:
        try:
            while True:
                await dirty.wait()
                dirty.clear()
                try:
                    await self._look_again(dirty)
                except BaseException:
                    dirty.set()  # what was not taken is looked at again
                    raise
        except SessionExpired:
            return  # whoever hears of the new session calls start again


class SessionWatches:
    """Several of them, begun and ended together, in their order."""

    def __init__(self, *watches: SessionWatch) -> None:
        self._watches = watches

    async def start(self) -> None:
        """Raises SessionExpired."""
        for watch in self._watches:
            await watch.start()

    async def renew(self) -> None:
        """Raises SessionExpired."""
        for watch in self._watches:
            await watch.renew()

    async def stop(self) -> None:
        for watch in self._watches:
            await watch.stop()
