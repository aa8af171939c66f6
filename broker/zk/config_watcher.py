"""Follows dynamic configuration: loads all of /config once in each session, then follows /config/changes (facts §1).

The watch is set before anything is loaded, so no change is missed. A znode that cannot be parsed is noted and skipped:
its entity keeps its settings. One that ZooKeeper does not let us read is skipped, too, but not in the first load: a
topic would be taken for one without settings, and records deleted by those of others.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from logyard.broker import tasks
from logyard.broker.errors import CorruptData, LogyardError
from logyard.broker.portions import portions
from logyard.broker.zk.session_watches import SessionWatch, children_or_creation
from logyard.broker.znodes import config_changes, configs
from logyard.broker.znodes.ops import Delete, WatchEvent, Znode, ZooKeeper
from logyard.broker.znodes.reading import read_each

ConfigChanged = Callable[[str, str, dict[str, str]], None]
"""Entity type and entity name (both as in the path), and its settings; they are empty if the znode is gone."""

OPS_PER_MULTI = 200


class ConfigWatcher(SessionWatch):
    """Follows the entities of all kinds in `configs.TYPES`.

    `changed` is called on the event loop, and may refuse settings with a LogyardError; `note` gets one line for each
    znode that cannot be parsed or is refused.
    """

    name = "config watcher"

    def __init__(self, zk: ZooKeeper, changed: ConfigChanged, note: Callable[[str], None]) -> None:
        super().__init__(zk)
        self._changed = changed
        self._note = note
        self._known: dict[tuple[str, str], None] = {}
        self._handled: dict[str, None] = {}
        self._has_loaded = False

    async def _load(self, dirty: asyncio.Event) -> None:
        names = await self._list_and_watch(dirty)
        self._handled = dict.fromkeys(names)
        await self._load_all()
        self._has_loaded = True

    async def _look_again(self, dirty: asyncio.Event) -> None:
        await self._process(await self._list_and_watch(dirty))

    async def _list_and_watch(self, dirty: asyncio.Event) -> list[str]:
        def changed(event: WatchEvent, path: str) -> None:
            dirty.set()

        return await children_or_creation(self._zk, config_changes.PATH, changed)

    async def _load_all(self) -> None:
        """Call `changed` for all entities, and for those that were known before and are gone."""
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
        read = dict(zip(names, await read_each(self._zk, [config_changes.path(name) for name in names]), strict=True))
        for name in fresh:
            if isinstance(refused := read[name], LogyardError):
                self._note(str(refused))
        notifications = {name: found for name, found in read.items() if not isinstance(found, LogyardError)}
        changed = [change for name in fresh if (change := self._decode(name, notifications.get(name))) is not None]
        # An entity with several changes is read once, after the last of them.
        await self._tell(list(dict.fromkeys(changed)))
        self._handled = dict.fromkeys(names)
        await self._purge(notifications)

    def _decode(self, name: str, znode: Znode | None) -> config_changes.ConfigChange | None:
        if znode is None:
            return None  # unreadable, or another broker has just purged it: then it was loaded 15 minutes ago
        try:
            return config_changes.decode(znode.data, config_changes.path(name))
        except CorruptData as problem:
            self._note(str(problem))
            return None

    async def _tell(self, entities: Sequence[tuple[str, str]]) -> None:
        async for portion in portions(entities):
            await self._tell_some(portion)

    async def _tell_some(self, entities: Sequence[tuple[str, str]]) -> None:
        znodes = await read_each(self._zk, [configs.path(kind, name) for kind, name in entities])
        for (kind, name), znode in zip(entities, znodes, strict=True):
            if isinstance(znode, LogyardError):
                if not self._has_loaded:
                    raise znode
                self._note(f"{kind}/{name} keeps its settings: {znode}")
                continue
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
                # One bad entity, perhaps of another kind of broker, must not stop the broker from starting or from
                # reading the other entities.
                tasks.failed("config watcher", bug)
                self._note(f"{kind}/{name} keeps its settings: {bug!r}")

    async def _purge(self, notifications: Mapping[str, Znode | None]) -> None:
        """Delete notifications that are 15 minutes older than the newest one.

        Only ZooKeeper's clock counts: if ours were wrong, changes could be deleted that other brokers have not seen.
        """
        there = {name: znode.mtime_ms for name, znode in notifications.items() if znode is not None}
        oldest_ms = max(there.values(), default=0) - config_changes.EXPIRATION_MS
        old = [name for name, mtime_ms in there.items() if mtime_ms < oldest_ms]
        for start in range(0, len(old), OPS_PER_MULTI):
            # In separate multis: all brokers purge, so any of them may be gone already.
            await self._zk.pipeline([[Delete(config_changes.path(n))] for n in old[start : start + OPS_PER_MULTI]])
