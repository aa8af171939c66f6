"""A multi whose connection broke after it was sent: did it happen?

It is sent again. Where the second try is refused because the first one had been carried out, the caller
must not be told of a failure that is its own success (a controller that won would think it had lost). So the
znodes are read, and if every one stands exactly as the multi would have left it, it counts as done.

What stays open: a sequential create (its first name is unknown) and an unconditional set are done twice;
where somebody else has written since, the refusal is passed on, and the caller reads again as after any
BAD_VERSION.
"""

from collections.abc import Mapping, Sequence

from logyard.broker.znodes.ops import ANY_VERSION, Check, Create, Delete, OpResult, SetData, ZkCode, ZkOp, Znode


def paths_to_read(ops: Sequence[ZkOp]) -> list[str]:
    """What `outcome` has to see."""
    return list(dict.fromkeys(op.path for op in ops if not isinstance(op, Check)))


def outcome(ops: Sequence[ZkOp], found: Mapping[str, Znode | None], session_id: int) -> list[OpResult] | None:
    """Return the answers the lost reply must have carried, or None where the multi cannot have happened.

    `found` holds every path of `paths_to_read`, as read after the refusal. A multi that touches a path twice
    is judged by the last of its operations there.
    """
    last = {op.path: op for op in ops if not isinstance(op, Check)}
    versions = _versions(ops)
    if not last or not all(_stands(op, versions[path], found[path], session_id) for path, op in last.items()):
        return None
    return [_answer(op, found.get(op.path)) for op in ops]


def _versions(ops: Sequence[ZkOp]) -> dict[str, int]:
    """The data version each path has after the multi, ANY_VERSION where that is not known."""
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
    if znode is None or (isinstance(op, Create) and op.sequential):
        return False
    if isinstance(op, Create) and znode.ephemeral_owner != (session_id if op.ephemeral else 0):
        return False
    assert isinstance(op, Create | SetData)
    return znode.data == op.data and version in (ANY_VERSION, znode.version)


def _answer(op: ZkOp, znode: Znode | None) -> OpResult:
    if znode is None or isinstance(op, Check):
        return OpResult(ZkCode.OK, op.path)
    return OpResult(ZkCode.OK, op.path, znode.version, znode.czxid)
