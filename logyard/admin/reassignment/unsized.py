"""Plans where a broker does not tell what it holds: which can be made without its bytes, and what is said then. Pure.

Bytes that only order moves, or estimate how long they take, may be missing. Bytes that decide whether disks get too
full, or which replicas move, may not.
"""

from collections.abc import Mapping, Sequence

from logyard.admin.quantities import plural
from logyard.admin.reassignment.plan import Move
from logyard.admin.reassignment.planner import PlanInput
from logyard.broker.errors import LogyardError


class SizesUnknown(LogyardError):
    """A plan needs bytes that a broker does not tell; the text names the broker, why, and what would help."""


def refuse_unsized(
    start: PlanInput, moves: Sequence[Move], untold: Mapping[int, str], *, balance_disk: bool = False
) -> None:
    """Raise SizesUnknown where the plan depends on the bytes of a broker of `untold` (broker → why).

    That is so where bytes are balanced; and where disks have a capacity, if replicas come to such a broker, or a
    partition moves of which only such brokers have replicas.
    """
    if balance_disk and untold:
        raise SizesUnknown(
            f"bytes cannot be balanced: {_told(min(untold), untold)}: wait until it answers, or balance counts only"
        )
    if not start.disks.capacities:
        return
    unknown = _unsized(start, moves, untold)
    for move in moves:
        if targets := [broker for broker in move.adding if broker in untold]:
            what = f"how full its disks get, is not known ({move.tp} comes)"
            raise SizesUnknown(f"{_told(targets[0], untold)}: {what}: {_ADVICE}")
        if move in unknown and move.adding:
            holder = next(broker for broker in move.replicas if broker in untold)
            what = f"how large {move.tp} is, is not known"
            raise SizesUnknown(f"{_told(holder, untold)}: {what}: {_ADVICE}")


def unsized_lines(start: PlanInput, moves: Sequence[Move], untold: Mapping[int, str]) -> list[str]:
    """What a plan lacks, as lines of a log; `untold`: the brokers that do not tell what they hold, and why."""
    lines = [f"{_told(broker, untold)}: they are not in this plan's numbers" for broker in sorted(untold)]
    if unknown := _unsized(start, moves, untold):
        lines.append(f"{plural(len(unknown), 'move')} of unknown size count as 0 bytes, {unknown[0].tp} among them")
    return lines


_ADVICE = "wait until it answers, or plan without disk_capacities"


def _told(broker: int, untold: Mapping[int, str]) -> str:
    return f"broker {broker} does not tell its bytes ({untold[broker]})"


def _unsized(start: PlanInput, moves: Sequence[Move], untold: Mapping[int, str]) -> list[Move]:
    return [move for move in moves if move.tp not in start.sizes and untold.keys() & set(move.replicas)]
