"""The server half of the in-memory twin: one tree of znodes for many sessions; memory.py is the client.

It follows ZooKeeper's rules: a multi is carried out completely or not at all, and then all operations but the failed
one report ROLLED_BACK; sequence numbers count the children ever created under a parent; all operations of a multi have
the same czxid; watches are one-shot and belong to a session. It is synchronous and deterministic.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from logyard.broker.clock import Clock
from logyard.broker.zk.watch_table import FIRES, WatchKind
from logyard.broker.znodes.ops import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    OpResult,
    SetData,
    WatchEvent,
    ZkCode,
    ZkOp,
    Znode,
)


class SessionClient(Protocol):
    """The client of a session; the tree calls it in the order of events."""

    def watch_fired(self, kind: WatchKind, event: WatchEvent, path: str) -> None: ...

    def session_expired(self) -> None: ...


@dataclass(slots=True)
class _Node:
    data: bytes
    czxid: int
    mzxid: int
    mtime_ms: int
    owner: int = 0
    version: int = 0
    created_children: int = 0
    children: dict[str, None] = field(default_factory=dict)


class _Refused(Exception):
    """An operation of a multi is refused."""

    def __init__(self, code: ZkCode) -> None:
        self.code = code


class ZooKeeperTree:
    """The znodes and sessions of an ensemble. `clock` gives the modification times."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._nodes = {"/": _Node(b"", 0, 0, 0)}
        self._zxid = 0
        self._last_session = 0x1000
        self._sessions: dict[int, SessionClient] = {}
        self._ephemerals: dict[int, dict[str, None]] = {}
        self._watches: dict[tuple[WatchKind, str], dict[int, None]] = {}
        self._undo: list[Callable[[], None]] = []
        self._triggers: list[tuple[WatchEvent, str]] = []

    @property
    def zxid(self) -> int:
        """The id of the last transaction."""
        return self._zxid

    def open_session(self, client: SessionClient, session_id: int | None = None) -> int:
        """Open a session for `client` and return its id, which a test may choose."""
        if session_id is None:
            self._last_session += 1
            session_id = self._last_session
        assert session_id not in self._ephemerals, f"session {session_id} is open already"
        self._zxid += 1
        self._sessions[session_id] = client
        self._ephemerals[session_id] = {}
        return session_id

    def is_open(self, session_id: int) -> bool:
        return session_id in self._sessions

    def sessions(self) -> list[int]:
        """Return the open sessions, oldest first."""
        return list(self._sessions)

    def expire(self, session_id: int) -> None:
        """End a session as its time-out does: ephemeral znodes and watches are deleted, and its client is notified."""
        client = self._sessions.get(session_id)
        self.close_session(session_id)
        if client is not None:
            client.session_expired()

    def close_session(self, session_id: int) -> None:
        """End a session as its client does; nothing happens if it has ended already."""
        if self._sessions.pop(session_id, None) is None:
            return
        for holders in self._watches.values():
            holders.pop(session_id, None)
        self._zxid += 1
        for path in sorted(self._ephemerals.pop(session_id)):
            self._delete_node(path)
        self._commit()

    def multi(self, session_id: int, ops: Sequence[ZkOp]) -> list[OpResult]:
        """Carry out all operations or none; the session must be open."""
        self._zxid += 1
        results: list[OpResult] = []
        for index, op in enumerate(ops):
            try:
                results.append(self._apply(session_id, op))
            except _Refused as refused:
                self._roll_back()
                rolled_back = [OpResult(ZkCode.ROLLED_BACK)] * len(ops)
                return [*rolled_back[:index], OpResult(refused.code), *rolled_back[index + 1 :]]
        self._commit()
        return results

    def read(self, path: str) -> Znode | None:
        node = self._nodes.get(path)
        return (
            None if node is None else Znode(node.data, node.version, node.czxid, node.mtime_ms, node.owner, node.mzxid)
        )

    def children(self, path: str) -> list[str] | None:
        node = self._nodes.get(path)
        return None if node is None else sorted(node.children)

    def watch(self, session_id: int, kind: WatchKind, path: str) -> None:
        """Set a one-shot watch for that session."""
        self._watches.setdefault((kind, path), {})[session_id] = None

    def leave_watches(self, session_id: int, zxid: int, watches: Sequence[tuple[WatchKind, str]]) -> None:
        """Do SetWatches for data and absence: watches on znodes that changed since `zxid` fire at once."""
        for kind, path in watches:
            node = self._nodes.get(path)
            event: WatchEvent | None = None
            if kind is WatchKind.ABSENT:
                event = None if node is None else WatchEvent.CREATED
            elif node is None:
                event = WatchEvent.DELETED
            elif node.mzxid > zxid:
                event = WatchEvent.CHANGED
            if event is None:
                self.watch(session_id, kind, path)
            else:
                self._sessions[session_id].watch_fired(kind, event, path)

    def _apply(self, session_id: int, op: ZkOp) -> OpResult:
        if not _is_path(op.path):
            raise _Refused(ZkCode.FAILED)
        match op:
            case Create():
                return self._create(session_id, op)
            case SetData():
                node = self._checked(op.path, op.version)
                before = (node.data, node.version, node.mtime_ms, node.mzxid)
                self._undo.append(lambda: _restore(node, before))
                node.data, node.version = op.data, node.version + 1
                node.mtime_ms, node.mzxid = self._clock.now_ms(), self._zxid
                self._triggers.append((WatchEvent.CHANGED, op.path))
                return OpResult(ZkCode.OK, op.path, node.version, node.czxid)
            case Delete():
                node = self._checked(op.path, op.version)
                if op.path == "/":
                    raise _Refused(ZkCode.FAILED)
                if node.children:
                    raise _Refused(ZkCode.NOT_EMPTY)
                self._delete_node(op.path)
                return OpResult(ZkCode.OK, op.path)
            case Check():
                self._checked(op.path, op.version)
                return OpResult(ZkCode.OK, op.path)

    def _checked(self, path: str, version: int) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise _Refused(ZkCode.NO_NODE)
        if version not in (ANY_VERSION, node.version):
            raise _Refused(ZkCode.BAD_VERSION)
        return node

    def _create(self, session_id: int, op: Create) -> OpResult:
        parent_path, _, name = op.path.rpartition("/")
        parent = self._nodes.get(parent_path or "/")
        if parent is None:
            raise _Refused(ZkCode.NO_NODE)
        if op.sequential:
            name += f"{parent.created_children:010d}"
        path = f"{parent_path}/{name}"
        if path in self._nodes:
            raise _Refused(ZkCode.NODE_EXISTS)
        if parent.owner:
            raise _Refused(ZkCode.FAILED)  # ephemeral znodes have no children
        owner = session_id if op.ephemeral else 0
        self._nodes[path] = _Node(op.data, self._zxid, self._zxid, self._clock.now_ms(), owner)
        parent.children[name] = None
        parent.created_children += 1
        if owner:
            self._ephemerals[session_id][path] = None
        self._undo.append(lambda: self._uncreate(path, name, parent, owner))
        self._triggers += [(WatchEvent.CREATED, path), (WatchEvent.CHILDREN, parent_path or "/")]
        return OpResult(ZkCode.OK, path, 0, self._zxid)

    def _uncreate(self, path: str, name: str, parent: _Node, owner: int) -> None:
        del self._nodes[path]
        del parent.children[name]
        parent.created_children -= 1
        if owner:
            del self._ephemerals[owner][path]

    def _delete_node(self, path: str) -> None:
        parent_path, _, name = path.rpartition("/")
        parent = self._nodes[parent_path or "/"]
        node = self._nodes.pop(path)
        del parent.children[name]
        mine = self._ephemerals.get(node.owner, {})
        mine.pop(path, None)
        self._undo.append(lambda: self._undelete(path, name, parent, node, mine))
        self._triggers += [(WatchEvent.DELETED, path), (WatchEvent.CHILDREN, parent_path or "/")]

    def _undelete(self, path: str, name: str, parent: _Node, node: _Node, mine: dict[str, None]) -> None:
        self._nodes[path] = node
        parent.children[name] = None
        if node.owner:
            mine[path] = None

    def _roll_back(self) -> None:
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        self._triggers.clear()

    def _commit(self) -> None:
        triggers, self._triggers = self._triggers, []
        self._undo.clear()
        for event, path in triggers:
            for kind in FIRES[event]:
                for session_id in self._watches.pop((kind, path), ()):
                    self._sessions[session_id].watch_fired(kind, event, path)


def _restore(node: _Node, before: tuple[bytes, int, int, int]) -> None:
    node.data, node.version, node.mtime_ms, node.mzxid = before


def _is_path(path: str) -> bool:
    return path == "/" or (path.startswith("/") and not path.endswith("/") and "//" not in path)
