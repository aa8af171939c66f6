"""Follows znodes by watches, which are set again in each session."""

import asyncio
from abc import ABC, abstractmethod
from functools import partial
from typing import Protocol

from logyard.broker import tasks
from logyard.broker.znodes.ops import SessionExpired, Watcher, ZooKeeper


class Followed(Protocol):
    """What is started in each session of the broker, and stopped with it."""

    async def start(self) -> None: ...
    async def renew(self) -> None: ...
    async def stop(self) -> None: ...


async def children_or_creation(zk: ZooKeeper, path: str, watcher: Watcher) -> list[str]:
    """Read a znode's children and watch them; where it is gone, watch for its creation: it has no children then."""
    while (names := await zk.children_and_watch(path, watcher)) is None:
        if await zk.read_and_watch(path, watcher) is None:
            return []
    return names


class SessionWatch(ABC):
    """Loads something and sets a watch; then a task reads what has changed whenever the watch has fired.

    Call `start` in each new session: the watches of the old one are gone. Call `renew` if a session may have ended
    unnoticed. Subclasses implement `_load` and `_look_again`; both set the watch before they read, and the watch sets
    `dirty`.
    """

    name = "watch"

    def __init__(self, zk: ZooKeeper) -> None:
        self._zk = zk
        self._task: asyncio.Task[None] | None = None
        self._session_id = 0  # the session in which the watch was set
        self._starting = asyncio.Lock()

    @abstractmethod
    async def _load(self, dirty: asyncio.Event) -> None:
        """Read everything, at the beginning of a session. Raises SessionExpired."""

    @abstractmethod
    async def _look_again(self, dirty: asyncio.Event) -> None:
        """Read what has changed. Raises SessionExpired."""

    async def start(self) -> None:
        """Load, then follow changes in a task. Raises SessionExpired."""
        async with self._starting:
            await self.stop()
            self._session_id, session_id = 0, self._zk.session_id
            dirty = asyncio.Event()
            await self._load(dirty)
            self._session_id = session_id
            self._task = tasks.keep(self.name, partial(self._follow, dirty))

    async def renew(self) -> None:
        """Start again if there is a new session since the last start, or that one failed. Raises SessionExpired."""
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
                    dirty.set()  # read again
                    raise
        except SessionExpired:
            return  # `start` is called in the new session


class SessionWatches:
    """Several watches, started and stopped together, in their order."""

    def __init__(self, *watches: Followed) -> None:
        self._watches = watches

    async def start(self) -> None:
        """Raises SessionExpired."""
        for watch in self._watches:
            await watch.start()

    async def renew(self) -> None:
        """Renew each, also if another cannot be renewed. Raises SessionExpired, else what the first of these raised."""
        refused: Exception | None = None
        for watch in self._watches:
            try:
                await watch.renew()
            except SessionExpired:
                raise
            except Exception as error:
                refused = refused or error
        if refused is not None:
            raise refused

    async def stop(self) -> None:
        for watch in self._watches:
            await watch.stop()
