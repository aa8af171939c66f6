"""Encodes ZooKeeper requests and decodes answers: those that the port needs; kazoo lacks MultiRead and SetWatches.

A request has what kazoo's connection needs: `type` (ZooKeeper's opcode), `serialize()` and `deserialize(buffer,
offset)`. Empty data is written as null, as Kafka does: its readers fail to parse an empty array. MultiRead (22) needs
ZooKeeper 3.6 or newer.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from logyard.broker.errors import CorruptData, LogyardError
from logyard.broker.zk.watch_table import WatchKind
from logyard.broker.znodes import permissions
from logyard.broker.znodes.ops import Check, Create, Delete, OpResult, SetData, Watcher, ZkCode, ZkOp, Znode

CHECK, CHILDREN, CREATE, CREATE2, DELETE, EXISTS, GET_DATA, SET_DATA = 13, 8, 1, 15, 2, 3, 4, 5
MULTI, MULTI_READ, SET_WATCHES = 14, 22, 101
_ERROR = -1

_INT = struct.Struct("!i")
_HEADER = struct.Struct("!iBi")  # of an operation in a multi: type, whether it is the end, error
# czxid mzxid ctime mtime version cversion aversion ephemeralOwner dataLength numChildren pzxid
_STAT = struct.Struct("!qqqqiiiqiiq")
_END = _HEADER.pack(-1, 1, -1)

NO_NODE, NO_AUTH = -101, -102
_CODES = {
    NO_NODE: ZkCode.NO_NODE,
    -103: ZkCode.BAD_VERSION,
    -110: ZkCode.NODE_EXISTS,
    -111: ZkCode.NOT_EMPTY,
    NO_AUTH: ZkCode.NO_AUTH,
    -114: ZkCode.INVALID_ACL,
    # Operations before the failed one have 0, those after it -2 ("runtime inconsistency").
    0: ZkCode.ROLLED_BACK,
    -2: ZkCode.ROLLED_BACK,
}


# A request is below jute.maxbuffer, 1 MiB, also where the paths have names that clients choose: users, groups.
READS_PER_REQUEST, READ_CHARS_PER_REQUEST = 500, 300_000


def read_portions(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the paths, in order, as one MultiRead takes them."""
    start = chars = 0
    for number, path in enumerate(paths):
        if number > start and (number - start == READS_PER_REQUEST or chars + len(path) > READ_CHARS_PER_REQUEST):
            yield paths[start:number]
            start, chars = number, 0
        chars += len(path)
    if start < len(paths):
        yield paths[start:]


class Stat(NamedTuple):
    """The fields of a znode's stat that are used."""

    czxid: int
    mtime_ms: int
    version: int
    ephemeral_owner: int
    mzxid: int


def real_path(path: str, root: str) -> str:
    """Return the path on the server; `root` is the chroot, "" for none."""
    return (root + path) if path != "/" else root or "/"


def _text(value: str) -> bytes:
    raw = value.encode("utf-8")
    return _INT.pack(len(raw)) + raw


@cache
def _acls(acls: permissions.Acls) -> bytes:
    """Encode an ACL; there are but a few different ones."""
    entries = (_INT.pack(acl.permissions) + _text(acl.scheme) + _text(acl.id) for acl in acls)
    return _INT.pack(len(acls)) + b"".join(entries)


def _buffer(value: bytes) -> bytes:
    return _INT.pack(len(value)) + value if value else _INT.pack(-1)


def _read_buffer(buffer: bytes, offset: int) -> tuple[bytes, int]:
    (length,) = _INT.unpack_from(buffer, offset)
    offset += 4
    if length < 0:
        return b"", offset
    return buffer[offset : offset + length], offset + length


def _read_stat(buffer: bytes, offset: int) -> tuple[Stat, int]:
    czxid, mzxid, _, mtime_ms, version, _, _, owner, _, _, _ = _STAT.unpack_from(buffer, offset)
    return Stat(czxid, mtime_ms, version, owner, mzxid), offset + _STAT.size


def _read_znode(buffer: bytes, offset: int) -> tuple[Znode, int]:
    data, offset = _read_buffer(buffer, offset)
    czxid, mzxid, _, mtime_ms, version, _, _, owner, _, _, _ = _STAT.unpack_from(buffer, offset)
    return Znode(data, version, czxid, mtime_ms, owner, mzxid), offset + _STAT.size


def _read_names(buffer: bytes, offset: int) -> tuple[list[str], int]:
    (count,) = _INT.unpack_from(buffer, offset)
    offset += 4
    names = []
    for _ in range(max(count, 0)):
        name, offset = _read_buffer(buffer, offset)
        names.append(name.decode("utf-8"))
    return sorted(names), offset


class Request:
    """A request; once it is `sent`, a lost connection leaves its outcome unknown."""

    type: int
    sent = False
    size = 0

    def serialize(self) -> bytes:
        """Return the body; the connection calls this when it sends the request."""
        body = self.body()
        self.sent, self.size = True, len(body)
        return body

    def body(self) -> bytes:
        raise NotImplementedError

    def deserialize(self, buffer: bytes, offset: int) -> Any:
        raise NotImplementedError


class Multi(Request):
    """A transaction; its answer is a list of OpResult. `root` is the chroot, "" for none.

    `acls` returns the ACL of a path (without the chroot) that is created.
    """

    type = MULTI

    def __init__(
        self,
        ops: Sequence[ZkOp],
        root: str = "",
        acls: Callable[[str], permissions.Acls] = permissions.open_acls,
    ) -> None:
        self.ops = ops
        self._root = root
        self._acls_of = acls

    def body(self) -> bytes:
        return b"".join([*(self._op(op) for op in self.ops), _END])

    def _op(self, op: ZkOp) -> bytes:
        path = _text(self._root + op.path)
        match op:
            case SetData():
                return _HEADER.pack(SET_DATA, 0, -1) + path + _buffer(op.data) + _INT.pack(op.version)
            case Check():
                return _HEADER.pack(CHECK, 0, -1) + path + _INT.pack(op.version)
            case Create():
                flags = _INT.pack(op.ephemeral | op.sequential << 1)
                return _HEADER.pack(CREATE2, 0, -1) + path + _buffer(op.data) + _acls(self._acls_of(op.path)) + flags
            case Delete():
                return _HEADER.pack(DELETE, 0, -1) + path + _INT.pack(op.version)

    def deserialize(self, buffer: bytes, offset: int) -> list[OpResult]:
        results = []
        for op in self.ops:
            kind, _, _ = _HEADER.unpack_from(buffer, offset)
            offset += _HEADER.size
            if kind == _ERROR:
                (error,) = _INT.unpack_from(buffer, offset)
                offset += 4
                results.append(OpResult(_CODES.get(error, ZkCode.FAILED)))
            elif kind == CREATE2:
                path, offset = _read_buffer(buffer, offset)
                stat, offset = _read_stat(buffer, offset)
                real = path.decode("utf-8").removeprefix(self._root)
                results.append(OpResult(ZkCode.OK, real, stat.version, stat.czxid))
            elif kind == CREATE:  # ZooKeeper 3.8.0 answers a Create2 so, without the stat; 3.8.4 no longer does
                path, offset = _read_buffer(buffer, offset)
                results.append(OpResult(ZkCode.OK, path.decode("utf-8").removeprefix(self._root), 0))
            elif kind == SET_DATA:
                stat, offset = _read_stat(buffer, offset)
                results.append(OpResult(ZkCode.OK, op.path, stat.version, stat.czxid))
            elif kind in (CHECK, DELETE):
                results.append(OpResult(ZkCode.OK, op.path))
            else:
                raise CorruptData(f"ZooKeeper answered an operation of a multi with type {kind}")
        return results


class MultiRead(Request):
    """Reads data (kind GET_DATA) or children (CHILDREN) of many znodes; None for each that does not exist."""

    type = MULTI_READ

    def __init__(self, kind: int, paths: Sequence[str], root: str = "") -> None:
        self._kind = kind
        self._paths = paths
        self._root = root

    def body(self) -> bytes:
        head = _HEADER.pack(self._kind, 0, -1)
        return b"".join([*(head + _text(real_path(path, self._root)) + b"\0" for path in self._paths), _END])

    def deserialize(self, buffer: bytes, offset: int) -> list[Any]:
        answers: list[Any] = []
        for path in self._paths:
            kind, _, _ = _HEADER.unpack_from(buffer, offset)
            offset += _HEADER.size
            if kind == _ERROR:
                (error,) = _INT.unpack_from(buffer, offset)
                offset += 4
                if error == NO_AUTH:
                    raise LogyardError(
                        f"ZooKeeper does not let this identity read {path}: log in as the brokers that created it do"
                    )
                if error != NO_NODE:
                    raise CorruptData(f"ZooKeeper refuses to read {path}: error {error}")
                answers.append(None)
            else:
                read = _read_znode if kind == GET_DATA else _read_names
                answer, offset = read(buffer, offset)
                answers.append(answer)
        return answers


class WatchedRead(Request):
    """A read that sets a watch. The answer is a Znode (GET_DATA), a Stat (EXISTS) or sorted names (CHILDREN)."""

    def __init__(self, kind: int, path: str, root: str, caller: Watcher) -> None:
        self.type = kind
        self.path = path
        self.real_path = real_path(path, root)
        self.caller = caller  # not named `watcher`: kazoo would call it itself

    def leaves(self, answer: Any) -> WatchKind:
        """Return the kind of watch that the server keeps after this answer (None: the znode does not exist)."""
        if self.type == CHILDREN:
            return WatchKind.CHILDREN
        return WatchKind.ABSENT if answer is None else WatchKind.DATA

    def body(self) -> bytes:
        return _text(self.real_path) + b"\x01"

    def deserialize(self, buffer: bytes, offset: int) -> Znode | Stat | list[str]:
        if self.type == GET_DATA:
            return _read_znode(buffer, offset)[0]
        if self.type == CHILDREN:
            return _read_names(buffer, offset)[0]
        return _read_stat(buffer, offset)[0]


class SetWatches(Request):
    """Sets many watches (paths with the chroot); those on znodes that changed since transaction `zxid` fire at once."""

    type = SET_WATCHES

    def __init__(self, zxid: int, watches: Sequence[tuple[WatchKind, str]]) -> None:
        self._zxid = zxid
        self._watches = watches

    def body(self) -> bytes:
        parts = [struct.pack("!q", self._zxid)]
        for wanted in (WatchKind.DATA, WatchKind.ABSENT, WatchKind.CHILDREN):
            paths = [path for kind, path in self._watches if kind is wanted]
            parts.append(_INT.pack(len(paths)))
            parts.extend(map(_text, paths))
        return b"".join(parts)

    def deserialize(self, buffer: bytes, offset: int) -> None:
        return None
