"""ZooKeeper's operations and answers as values, and the port of its client.

Pure code makes the operations; `broker/zk/session.py` carries them out on a server, `broker/zk/memory.py` in memory.
Versions are znode data versions; -1 means any.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from logyard.broker.errors import LogyardError

ANY_VERSION = -1


@dataclass(frozen=True, slots=True)
class Create:
    """Create a znode; `sequential` appends ZooKeeper's ten digits to the path."""

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


class Znode(NamedTuple):
    """A znode: data, data version, transaction that created it, session that owns it (0: it is persistent).

    `mzxid` is the transaction that last wrote the data, -1 if it is not known.
    """

    data: bytes
    version: int
    czxid: int
    mtime_ms: int = 0
    ephemeral_owner: int = 0
    mzxid: int = -1


class ZkCode(Enum):
    """The result of one operation."""

    OK = "ok"
    NO_NODE = "no node"
    NODE_EXISTS = "node exists"
    BAD_VERSION = "bad version"
    NOT_EMPTY = "not empty"
    ROLLED_BACK = "rolled back"  # another operation of the same multi failed
    NO_AUTH = "its ACL does not allow it to the identity that has logged in"
    INVALID_ACL = "no ACL for a session that has not logged in"
    FAILED = "failed"  # any other error


@dataclass(frozen=True, slots=True)
class OpResult:
    """The answer to one operation of a multi: `path` is that of a Create (with its digits), `version` of a SetData."""

    code: ZkCode
    path: str = ""
    version: int = -1
    czxid: int = -1

    @property
    def ok(self) -> bool:
        return self.code is ZkCode.OK


def refused(results: Sequence[OpResult]) -> ZkCode | None:
    """Why a multi was refused; None if it succeeded."""
    codes = [result.code for result in results if not result.ok]
    return next((code for code in codes if code is not ZkCode.ROLLED_BACK), codes[0] if codes else None)


class SessionExpired(LogyardError):
    """The ZooKeeper session has ended, and its ephemeral znodes and watches are gone. Nothing may be written in it."""


class WatchEvent(Enum):
    """The event for which a watch has fired."""

    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    CHILDREN = "children"


Watcher = Callable[[WatchEvent, str], None]


class ZooKeeper(Protocol):
    """A session with ZooKeeper, for use on the event loop. All calls may raise SessionExpired.

    A lost connection is made again until the session is known to have ended. Watches are one-shot, and are called on
    the event loop, before the answer of a read that was sent after the change.
    """

    async def multi(self, ops: Sequence[ZkOp]) -> list[OpResult]:
        """Carry out all operations or none. If none, one result has the reason, and the others ROLLED_BACK."""
        ...

    async def pipeline(self, multis: Sequence[Sequence[ZkOp]]) -> list[list[OpResult]]:
        """Send several independent multis, then wait for all answers."""
        ...

    async def read(self, paths: Sequence[str]) -> list[Znode | None]:
        """Read the data of many znodes (MultiRead, in batches); None for those that do not exist."""
        ...

    async def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Read the children of many znodes, sorted; None for znodes that do not exist."""
        ...

    async def read_and_watch(self, path: str, watcher: Watcher) -> Znode | None:
        """Read a znode and set a watch: on its data if it exists, else on its creation."""
        ...

    async def read_and_watch_all(self, targets: Sequence[tuple[str, Watcher]]) -> list[Znode | None]:
        """Do the same for many znodes in a few requests. A change just before the read may call the watcher too."""
        ...

    async def children_and_watch(self, path: str, watcher: Watcher) -> list[str] | None:
        """Read children and set a child watch; None, and no watch, if the znode does not exist."""
        ...

    @property
    def session_id(self) -> int:
        """The current session's id, which Znode.ephemeral_owner has too."""
        ...
