"""One-shot watches as events: which ones are set, so that no path is watched twice and each change counts once.

Rule: while a watch is set a plain read is enough: if the path changes before the read's answer, the watch
has queued its event by then (the ZooKeeper port's promise). Setting and reading is the runner's work.
"""

from collections.abc import Callable

from logyard.broker.controller.events import Event
from logyard.broker.znodes.ops import Watcher, WatchEvent


class WatchBook:
    """Remembers set watches of one kind (data or children) and turns what they see into events."""

    def __init__(self, put: Callable[[Event], None]) -> None:
        self._put = put
        self._set: dict[str, object] = {}

    def is_set(self, path: str) -> bool:
        return path in self._set

    def set(self, path: str, event: Event) -> Watcher:
        """Return the watcher to leave on the path; it counts as set from now on."""
        ticket = object()
        self._set[path] = ticket

        def fired(_: WatchEvent, __: str) -> None:
            # A watch of a session that is gone, or one set again since, has nothing to say.
            if self._set.get(path) is ticket:
                del self._set[path]
                self._put(event)

        return fired

    def unset(self, path: str) -> None:
        """The watch was not left after all."""
        self._set.pop(path, None)

    def forget(self) -> None:
        """All watches are gone, with their session."""
        self._set.clear()
