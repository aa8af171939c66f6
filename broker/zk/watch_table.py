"""The one-shot watches of a session, and their watchers."""

from enum import Enum

from logyard.broker.znodes.ops import Watcher, WatchEvent


class WatchKind(Enum):
    """What is watched: the data of a znode that exists, the creation of one that does not, or children."""

    DATA = "data"
    ABSENT = "absent"
    CHILDREN = "children"


# ZooKeeper has data and absence watches in one table; a deletion fires child watches too.
FIRES: dict[WatchEvent, tuple[WatchKind, ...]] = {
    WatchEvent.CREATED: (WatchKind.DATA, WatchKind.ABSENT),
    WatchEvent.CHANGED: (WatchKind.DATA, WatchKind.ABSENT),
    WatchEvent.DELETED: (WatchKind.DATA, WatchKind.ABSENT, WatchKind.CHILDREN),
    WatchEvent.CHILDREN: (WatchKind.CHILDREN,),
}


class WatchTable:
    """The client's watchers. One that was added twice is called once, as in ZooKeeper's own client."""

    def __init__(self) -> None:
        self._watchers: dict[tuple[WatchKind, str], dict[Watcher, None]] = {}

    def add(self, kind: WatchKind, path: str, watcher: Watcher) -> None:
        self._watchers.setdefault((kind, path), {})[watcher] = None

    def take(self, kind: WatchKind, path: str) -> list[Watcher]:
        """Remove the watchers of (kind, path) and return them, oldest first."""
        return list(self._watchers.pop((kind, path), ()))

    def clear(self) -> None:
        self._watchers.clear()
