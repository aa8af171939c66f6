"""The only way the controller writes to ZooKeeper: every transaction first checks its epoch.

Rule 1: the first op of every multi is check(/controller_epoch, the version of our own election). If it fails, another
broker has been elected: ControllerMoved, and nothing more is written.
Rule 2: writes are given as units, each all-or-nothing and independent of the others; units share transactions of at
most 200 ops and 512 KiB, which are sent back to back, those of UNITS_AT_ONCE units.
Rule 3: a unit that fails is settled alone; the others of its transaction are sent again, in smaller and smaller
transactions, so that even many failures cost few rounds.
"""

from collections.abc import Sequence

from logyard.broker.controller import effects
from logyard.broker.controller.context import ControllerContext
from logyard.broker.controller.effects import Steps
from logyard.broker.errors import LogyardError
from logyard.broker.znodes import controller as controller_znode
from logyard.broker.znodes.ops import Check, Create, OpResult, SetData, ZkCode, ZkOp

OPS_MAX = 200
BYTES_MAX = 512 * 1024
# Some milliseconds of work between the answers of ZooKeeper.
UNITS_AT_ONCE = 1000
_SHRINK = 6

Unit = Sequence[ZkOp]


class ControllerMoved(LogyardError):
    """Another broker has been elected controller, or this one has lost its znode: resign without a further write."""


def write(context: ControllerContext, units: Sequence[Unit]) -> Steps[list[list[OpResult]]]:
    """Write units and return the op results of each, in order; raises ControllerMoved."""
    settled: list[list[OpResult]] = []
    for start in range(0, len(units), UNITS_AT_ONCE):
        settled += yield from _write_some(context, units[start : start + UNITS_AT_ONCE])
    return settled


def _write_some(context: ControllerContext, units: Sequence[Unit]) -> Steps[list[list[OpResult]]]:
    settled: list[list[OpResult]] = [[] for _ in units]
    waiting = list(range(len(units)))
    limit = OPS_MAX
    while waiting:
        chunks = _chunks(units, waiting, limit)
        check = Check(controller_znode.EPOCH_PATH, context.epoch_zk_version)
        answers = yield from effects.multi([[check, *(op for i in chunk for op in units[i])] for chunk in chunks])
        waiting = []
        for chunk, answer in zip(chunks, answers, strict=True):
            waiting.extend(_settle(chunk, units, answer, settled))
        limit = max(1, limit // _SHRINK)
    return settled


def write_one(context: ControllerContext, *ops: ZkOp) -> Steps[OpResult]:
    """Write one unit; return the result that decides: the first failure, else that of the last op."""
    results = (yield from write(context, [ops]))[0]
    return deciding(results)


def deciding(results: Sequence[OpResult]) -> OpResult:
    """Return the result that decides a unit: its first failure, else that of its last op."""
    return next((r for r in results if not r.ok and r.code is not ZkCode.ROLLED_BACK), results[-1])


def _chunks(units: Sequence[Unit], waiting: Sequence[int], limit: int) -> list[list[int]]:
    """Pack the waiting units, in order, into transactions within the limits (a big unit goes alone)."""
    chunks: list[list[int]] = []
    ops = size = 0
    for index in waiting:
        unit = units[index]
        unit_size = sum(_size(op) for op in unit)
        if not chunks or ops + len(unit) > limit or size + unit_size > BYTES_MAX:
            chunks.append([])
            ops = size = 0
        chunks[-1].append(index)
        ops += len(unit)
        size += unit_size
    return chunks


def _size(op: ZkOp) -> int:
    # 64 bytes for the op's header, version and flags on the wire.
    data = len(op.data) if isinstance(op, Create | SetData) else 0
    return 64 + len(op.path) + data


def _settle(
    chunk: Sequence[int], units: Sequence[Unit], answer: Sequence[OpResult], settled: list[list[OpResult]]
) -> list[int]:
    """Store the results of one transaction; return the units that have to be sent again."""
    if not answer[0].ok and answer[0].code is not ZkCode.ROLLED_BACK:
        raise ControllerMoved(f"the check of {controller_znode.EPOCH_PATH} failed: {answer[0].code.value}")
    per_unit: dict[int, list[OpResult]] = {}
    position = 1
    for index in chunk:
        per_unit[index] = list(answer[position : position + len(units[index])])
        position += len(units[index])
    if all(result.ok for result in answer):
        for index, results in per_unit.items():
            settled[index] = results
        return []
    culprits = [i for i, rs in per_unit.items() if any(not r.ok and r.code is not ZkCode.ROLLED_BACK for r in rs)]
    if not culprits:
        raise ControllerMoved("ZooKeeper rolled a transaction back without naming the operation that failed")
    for index in culprits:
        settled[index] = per_unit[index]
    return [index for index in chunk if index not in culprits]
