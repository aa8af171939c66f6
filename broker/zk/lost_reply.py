"""Finds out whether a multi was carried out if the connection broke before its answer.

The multi is sent again. If it is refused then, the first one may have been carried out; the caller must not take that
for a failure (an elected controller would think that another one was elected). So the znodes are read: if all are
exactly as the multi would have left them, it counts as done.

A sequential create has a name that nobody knows; beside other operations it was carried out if they were. Not covered:
sequential creates alone, and an unconditional set, are done twice. If others have written since, the refusal is passed
on, and the caller reads again, as after any BAD_VERSION.
"""

from collections.abc import Mapping, Sequence

from logyard.broker.znodes.ops import ANY_VERSION, Check, Create, Delete, OpResult, SetData, ZkCode, ZkOp, Znode


def paths_to_read(ops: Sequence[ZkOp]) -> list[str]:
    """Return the paths that `outcome` needs."""
    return list(_last(ops))


def outcome(ops: Sequence[ZkOp], found: Mapping[str, Znode | None], session_id: int) -> list[OpResult] | None:
    """Return the answers that the lost reply must have had, None if the multi was not carried out.

    `found` has the znodes of `paths_to_read`, read after the refusal. If a multi changes a path twice, the last of
    these operations counts.
    """
    last = _last(ops)
    versions = _versions(ops)
    if not last or not all(_stands(op, versions[path], found[path], session_id) for path, op in last.items()):
        return None
    return [_answer(op, found.get(op.path)) for op in ops]


def _last(ops: Sequence[ZkOp]) -> dict[str, Create | SetData | Delete]:
    """The last operation on each path that can be looked at afterwards."""
    return {op.path: op for op in ops if not isinstance(op, Check) and not _is_sequential(op)}


def _is_sequential(op: ZkOp) -> bool:
    return isinstance(op, Create) and op.sequential


def _versions(ops: Sequence[ZkOp]) -> dict[str, int]:
    """Return the data version of each path after the multi, ANY_VERSION if it is unknown."""
    versions: dict[str, int] = {}
    for op in ops:
        if isinstance(op, Create):
            versions[op.path] = 0
        elif isinstance(op, SetData):
            before = op.version if op.version != ANY_VERSION else versions.get(op.path, ANY_VERSION)
            versions[op.path] = ANY_VERSION if before == ANY_VERSION else before + 1
        elif isinstance(op, Delete):
            versions[op.path] = ANY_VERSION
    return versions


def _stands(op: ZkOp, version: int, znode: Znode | None, session_id: int) -> bool:
    if isinstance(op, Delete):
        return znode is None
    if znode is None:
        return False
    if isinstance(op, Create) and znode.ephemeral_owner != (session_id if op.ephemeral else 0):
        return False
    assert isinstance(op, Create | SetData)
    return znode.data == op.data and version in (ANY_VERSION, znode.version)


def _answer(op: ZkOp, znode: Znode | None) -> OpResult:
    if znode is None or isinstance(op, Check):
        return OpResult(ZkCode.OK, op.path)
    return OpResult(ZkCode.OK, op.path, znode.version, znode.czxid)
