"""Keeps dynamic configuration fresh: loads all of /config once per session, then follows /config/changes.

The watch is left before anything is loaded, so a change is either in what is loaded or notified. A znode that
does not parse is noted and skipped: its entity keeps what it had.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from logyard.broker import tasks
from logyard.broker.errors import CorruptData, LogyardError
from logyard.broker.zk.session_watches import SessionWatch
from logyard.broker.znodes import config_changes, configs
from logyard.broker.znodes.ops import Delete, WatchEvent, Znode, ZooKeeper

ConfigChanged = Callable[[str, str, dict[str, str]], None]
"""entity type, entity name (both as in the path), its settings; none when the znode is gone."""

OPS_PER_MULTI = 200


class ConfigWatcher(SessionWatch):
    """Follows every kind of entity in `configs.TYPES`.

    `changed` is called on the event loop, and may refuse settings with a LogyardError; `note` gets one line
    for each znode that is not understood or refused.
    """

    name = "config watcher"

    def __init__(self, zk: ZooKeeper, changed: ConfigChanged, note: Callable[[str], None]) -> None:
        super().__init__(zk)
        self._changed = changed
        self._note = note
        self._known: dict[tuple[str, str], None] = {}
        self._handled: dict[str, None] = {}

    async def _load(self, dirty: asyncio.Event) -> None:
        names = await self._list_and_watch(dirty)
        self._handled = dict.fromkeys(names)
        await self._load_all()

    async def _look_again(self, dirty: asyncio.Event) -> None:
        await self._process(await self._list_and_watch(dirty))

    async def _list_and_watch(self, dirty: asyncio.Event) -> list[str]:
        def changed(event: WatchEvent, path: str) -> None:
            dirty.set()

        return await self._zk.children_and_watch(config_changes.PATH, changed) or []

    async def _load_all(self) -> None:
        """Tell every entity there is, and the absence of those that were known before."""
        children = await self._zk.children([configs.type_path(kind) for kind in configs.TYPES])
        entities = [(kind, name) for kind, names in zip(configs.TYPES, children, strict=True) for name in names or []]
        users = [name for kind, name in entities if kind == configs.USERS]
        clients = await self._zk.children([configs.path(configs.USERS, f"{user}/clients") for user in users])
        for user, names in zip(users, clients, strict=True):
            entities += [(configs.USERS, f"{user}/clients/{name}") for name in names or []]
        present = dict.fromkeys(entities)
        gone = [entity for entity in self._known if entity not in present]
        await self._tell([*entities, *gone])

    async def _process(self, names: Sequence[str]) -> None:
        fresh = [name for name in names if name not in self._handled]
        read = await self._zk.read([config_changes.path(name) for name in names])
        notifications = dict(zip(names, read, strict=True))
        changed = [change for name in fresh if (change := self._decode(name, notifications[name])) is not None]
        # Several changes of one entity: it is read once, after the last of them.
        await self._tell(list(dict.fromkeys(changed)))
        self._handled = dict.fromkeys(names)
        await self._purge(notifications)

    def _decode(self, name: str, znode: Znode | None) -> config_changes.ConfigChange | None:
        if znode is None:
            return None  # purged by another broker in this moment: older than 15 minutes, so loaded long ago
        try:
            return config_changes.decode(znode.data, config_changes.path(name))
        except CorruptData as problem:
            self._note(str(problem))
            return None

    async def _tell(self, entities: Sequence[tuple[str, str]]) -> None:
        znodes = await self._zk.read([configs.path(kind, name) for kind, name in entities])
        for (kind, name), znode in zip(entities, znodes, strict=True):
            if znode is None:
                self._known.pop((kind, name), None)
            else:
                self._known[kind, name] = None
            try:
                settings = {} if znode is None else configs.decode(znode.data, configs.path(kind, name))
                self._changed(kind, name, settings)
            except LogyardError as problem:
                self._note(f"{kind}/{name} keeps its settings: {problem}")
            except Exception as bug:
                # One entity that nobody can take must not keep this broker from the settings of all others, nor from
                # starting: whoever stored it may be another kind of broker.
                tasks.failed("config watcher", bug)
                self._note(f"{kind}/{name} keeps its settings: {bug!r}")

    async def _purge(self, notifications: Mapping[str, Znode | None]) -> None:
        """Remove what is 15 minutes older than the newest, by ZooKeeper's clock alone: with a clock of ours that is
        wrong, changes would go that other brokers have not seen."""
        there = {name: znode.mtime_ms for name, znode in notifications.items() if znode is not None}
        oldest_ms = max(there.values(), default=0) - config_changes.EXPIRATION_MS
        old = [name for name, mtime_ms in there.items() if mtime_ms < oldest_ms]
        for start in range(0, len(old), OPS_PER_MULTI):
            # One by one: every broker purges, so any of them may be gone already.
            await self._zk.pipeline([[Delete(config_changes.path(n))] for n in old[start : start + OPS_PER_MULTI]])
