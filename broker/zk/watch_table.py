"""Which one-shot watches a session holds, and whom each of them calls."""

from enum import Enum

from logyard.broker.znodes.ops import Watcher, WatchEvent


class WatchKind(Enum):
    """What a watch was left on: data of a znode that was there, the absence of one, or its children."""

    DATA = "data"
    ABSENT = "absent"
    CHILDREN = "children"


# ZooKeeper keeps data and absence watches in one table; a deletion ends a child watch too.
FIRES: dict[WatchEvent, tuple[WatchKind, ...]] = {
    WatchEvent.CREATED: (WatchKind.DATA, WatchKind.ABSENT),
    WatchEvent.CHANGED: (WatchKind.DATA, WatchKind.ABSENT),
    WatchEvent.DELETED: (WatchKind.DATA, WatchKind.ABSENT, WatchKind.CHILDREN),
    WatchEvent.CHILDREN: (WatchKind.CHILDREN,),
}


class WatchTable:
    """The client's side. A watcher left twice on the same thing is called once, as in ZooKeeper's own client."""

    def __init__(self) -> None:
        self._watchers: dict[tuple[WatchKind, str], dict[Watcher, None]] = {}

    def add(self, kind: WatchKind, path: str, watcher: Watcher) -> None:
        self._watchers.setdefault((kind, path), {})[watcher] = None

    def take(self, kind: WatchKind, path: str) -> list[Watcher]:
        """Forget the watchers of (kind, path) and return them, oldest first."""
        return list(self._watchers.pop((kind, path), ()))

    def clear(self) -> None:
        self._watchers.clear()
