"""Follows the ACLs: loads all in each session, then reads what notifications name (facts §18.4)."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from logyard.broker.errors import LogyardError
from logyard.broker.security.acls.store import AclStore
from logyard.broker.zk.session_watches import SessionWatch, children_or_creation
from logyard.broker.znodes import acls
from logyard.broker.znodes.acls import ResourcePattern
from logyard.broker.znodes.ops import Delete, WatchEvent, Znode, ZooKeeper
from logyard.broker.znodes.reading import read_each

OPS_PER_MULTI = 200
# How long after ACLs could not be read for want of rights it is tried again.
UNREAD_AGAIN_S = 10.0


class AclWatcher(SessionWatch):
    """Keeps an AclStore as ZooKeeper is. `note` gets a line for each notification that cannot be parsed or read.

    `start` raises CorruptData or LogyardError if the ACLs cannot be loaded for the first time.
    """

    name = "acl watcher"

    def __init__(self, zk: ZooKeeper, store: AclStore, note: Callable[[str], None]) -> None:
        super().__init__(zk)
        self._store = store
        self._note = note
        self._handled: dict[str, None] = {}
        self._later: asyncio.TimerHandle | None = None

    async def _load(self, dirty: asyncio.Event) -> None:
        await self._store.create_paths()
        self._handled = dict.fromkeys(await self._list_and_watch(dirty))
        await self._store.load()
        self._look_later(dirty)

    async def _look_again(self, dirty: asyncio.Event) -> None:
        present = await self._list_and_watch(dirty)
        notices = dict(zip(present, await read_each(self._zk, present), strict=True))
        fresh = [path for path in present if path not in self._handled]
        await self._store.read_again([*self._changed(fresh, notices), *self._store.unread])
        self._handled = dict.fromkeys(present)
        self._look_later(dirty)
        await self._purge(notices)

    def _look_later(self, dirty: asyncio.Event) -> None:
        """Look again where something could not be read: nobody tells that the rights to it were mended."""
        if self._later is not None:
            self._later.cancel()
        loop = asyncio.get_running_loop()
        self._later = loop.call_later(UNREAD_AGAIN_S, dirty.set) if self._store.unread else None

    async def _list_and_watch(self, dirty: asyncio.Event) -> list[str]:
        """Return the paths of all notifications."""

        def changed(event: WatchEvent, path: str) -> None:
            dirty.set()

        found: list[str] = []
        for folder in (acls.LITERAL_CHANGES, acls.EXTENDED_CHANGES):
            names = await children_or_creation(self._zk, folder, changed)
            found += [f"{folder}/{name}" for name in names]
        return found

    def _changed(
        self, fresh: Sequence[str], notices: Mapping[str, Znode | LogyardError | None]
    ) -> list[ResourcePattern]:
        changed: dict[ResourcePattern, None] = {}
        for path in fresh:
            znode = notices[path]
            if znode is None:
                continue  # another broker has just purged it: it is older than 15 minutes, so it was loaded
            try:
                if isinstance(znode, LogyardError):
                    raise znode
                changed[acls.decode_notification(znode.data, path)] = None
            except LogyardError as problem:
                self._note(str(problem))
        return list(changed)

    async def _purge(self, notices: Mapping[str, Znode | LogyardError | None]) -> None:
        """Delete notifications that are 15 minutes older than the newest one, by ZooKeeper's clock alone."""
        there = {path: znode.mtime_ms for path, znode in notices.items() if isinstance(znode, Znode)}
        oldest_ms = max(there.values(), default=0) - acls.EXPIRATION_MS
        old = [path for path, mtime_ms in there.items() if mtime_ms < oldest_ms]
        for start in range(0, len(old), OPS_PER_MULTI):
            # In separate multis: all brokers purge, so any of them may be gone already.
            await self._zk.pipeline([[Delete(path)] for path in old[start : start + OPS_PER_MULTI]])
