"""What the page shows of clusters, with one look at each for everybody who watches it."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from logyard.admin.connect import Connector
from logyard.admin.ports import ClusterClient
from logyard.admin.settings import ClusterSettings
from logyard.admin.snapshot import as_json

FRESH_S = 2.0
IDLE_S = 300.0
# A page is not worth a long wait: it is asked for again in a moment.
_REQUEST_S, _TOTAL_S = 3.0, 4.0


@dataclass
class _Entry:
    settings: ClusterSettings
    lock: threading.Lock = field(default_factory=threading.Lock)
    client: ClusterClient | None = None
    taken: float = float("-inf")
    content: dict[str, Any] = field(default_factory=dict)
    problem: Exception | None = None


class Looks:
    """Snapshots by connection id, at most one every two seconds; clients nobody asked for in a while are closed."""

    def __init__(self, connector: Connector, clock: Callable[[], float] = time.monotonic) -> None:
        self._connector, self._clock = connector, clock
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}

    def cluster(self, conn_id: str, settings: ClusterSettings) -> dict[str, Any]:
        """The cluster as JSON values. Raises what the last look raised, for as long as that is fresh."""
        entry = self._entry(conn_id, settings)
        with entry.lock:
            if self._clock() - entry.taken >= FRESH_S:
                self._look(entry)
            if entry.problem is not None:
                raise entry.problem
            return entry.content

    def _look(self, entry: _Entry) -> None:
        try:
            if entry.client is None:
                entry.client = self._connector.cluster(entry.settings)
            entry.content, entry.problem = as_json(entry.client.snapshot(reassignments=True)), None
        except Exception as problem:
            entry.problem = problem
            _close(entry)
        entry.taken = self._clock()

    def _entry(self, conn_id: str, settings: ClusterSettings) -> _Entry:
        brief = replace(settings, request_timeout_s=_REQUEST_S, total_timeout_s=_TOTAL_S)
        with self._lock:
            now = self._clock()
            for name, old in list(self._entries.items()):
                changed = name == conn_id and old.settings != brief
                idle = old.client is not None and now - old.taken > IDLE_S
                if (changed or idle) and not old.lock.locked():
                    _close(self._entries.pop(name))
            return self._entries.setdefault(conn_id, _Entry(brief))


def _close(entry: _Entry) -> None:
    client, entry.client = entry.client, None
    if client is not None:
        client.close()
