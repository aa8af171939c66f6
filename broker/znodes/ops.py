"""ZooKeeper's operations, answers and client port as plain values.

Pure code yields these; `broker/zk/session.py` carries them out on a server and
`broker/zk/memory.py` in memory. Versions are znode data versions; -1 means "any".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from logyard.broker.errors import LogyardError

ANY_VERSION = -1


@dataclass(frozen=True, slots=True)
class Create:
    """Create a znode; `sequential` appends ZooKeeper's ten digits; `container` is not used."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    path: str
    version: int


ZkOp = Create | SetData | Delete | Check


@dataclass(frozen=True, slots=True)
class Znode:
    """A znode as read: data, data version, creating transaction, owning session (0 = persistent).

    `mzxid` is the transaction that last wrote the data, -1 where it is not known.
    """

    data: bytes
    version: int
    czxid: int
    mtime_ms: int = 0
    ephemeral_owner: int = 0
    mzxid: int = -1


class ZkCode(Enum):
    """How one operation ended."""

    OK = "ok"
    NO_NODE = "no node"
    NODE_EXISTS = "node exists"
    BAD_VERSION = "bad version"
    NOT_EMPTY = "not empty"
    ROLLED_BACK = "rolled back"  # another operation of the same multi failed
    FAILED = "failed"  # anything else ZooKeeper says (no auth, marshalling…)


@dataclass(frozen=True, slots=True)
class OpResult:
    """Answer to one op of a multi. `path` of a Create (the real one when sequential), `version` of a SetData."""

    code: ZkCode
    path: str = ""
    version: int = -1
    czxid: int = -1

    @property
    def ok(self) -> bool:
        return self.code is ZkCode.OK


class SessionExpired(LogyardError):
    """The ZooKeeper session is gone: ephemeral nodes and watches with it. Nothing more may be written in it."""


class WatchEvent(Enum):
    """What a one-shot watch saw."""

    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"


Watcher = Callable[[WatchEvent, str], None]


class ZooKeeper(Protocol):
    """A session with ZooKeeper, seen from the event loop. Every call may raise SessionExpired.

    A lost connection is retried inside until the session is known to be gone. Watches are one-shot and
    are called on the event loop, before the answer of any read that was sent after the change.
    """

    async def multi(self, ops: Sequence[ZkOp]) -> list[OpResult]:
        """Do all ops or none, in one transaction; when none, exactly one result says why, others ROLLED_BACK."""
        ...

    async def pipeline(self, multis: Sequence[Sequence[ZkOp]]) -> list[list[OpResult]]:
        """Send several independent multis back to back and wait for all answers."""
        ...

    async def read(self, paths: Sequence[str]) -> list[Znode | None]:
        """Read many znodes' data (MultiRead, batched); None where there is no such znode."""
        ...

    async def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Read many znodes' children, sorted; None where there is no such znode."""
        ...

    async def read_and_watch(self, path: str, watcher: Watcher) -> Znode | None:
        """Read data and leave a watch (data watch if it exists, else exists-watch)."""
        ...

    async def read_and_watch_all(self, targets: Sequence[tuple[str, Watcher]]) -> list[Znode | None]:
        """The same for many, in a few requests; a change just before the read may call the watcher all the same."""
        ...

    async def children_and_watch(self, path: str, watcher: Watcher) -> list[str] | None:
        """Read children and leave a child watch; None, and no watch, where there is no such znode."""
        ...

    @property
    def session_id(self) -> int:
        """The current session's id, to be compared with Znode.ephemeral_owner."""
        ...
