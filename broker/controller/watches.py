"""One-shot watches as events: records which are set, so that no path is watched twice and each change counts once.

Rule: while a watch is set a plain read is enough: if the path changes before the read is answered, the watch has queued
its event by then (the ZooKeeper port guarantees that). The runner sets watches and reads.
"""

from collections.abc import Callable

from logyard.broker.controller.events import Event
from logyard.broker.znodes.ops import Watcher, WatchEvent


class WatchBook:
    """The set watches of one kind (data or children); turns their notifications into events."""

    def __init__(self, put: Callable[[Event], None]) -> None:
        self._put = put
        self._set: dict[str, object] = {}

    def is_set(self, path: str) -> bool:
        return path in self._set

    def set(self, path: str, event: Event) -> Watcher:
        """Return the watcher for the path, which counts as set from now on."""
        ticket = object()
        self._set[path] = ticket

        def fired(_: WatchEvent, __: str) -> None:
            # A watch of an ended session, or one that was set again since, is ignored.
            if self._set.get(path) is ticket:
                del self._set[path]
                self._put(event)

        return fired

    def unset(self, path: str) -> None:
        """The watch was not set after all."""
        self._set.pop(path, None)

    def forget(self) -> None:
        """Forget all watches, which ended with their session."""
        self._set.clear()
