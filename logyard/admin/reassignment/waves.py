"""Which moves of a plan start now: running ones are adopted, the others start wave by wave. Pure.

A repeated run adopts running moves that equal the plan; a move whose topic was deleted is dropped, the others go on.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.admin.reassignment.plan import Move
from logyard.broker.errors import LogyardError
from logyard.broker.model import Assignment, TopicPartition

MOVES_PER_BROKER = 5


class ForeignReassignment(LogyardError):
    """Somebody else's reassignment is running; the text names the partitions."""


class MovesUnknown(LogyardError):
    """No controller has told which moves run."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """A plan compared with the running reassignments: moves to start, running moves of the plan, and moves of
    others."""

    to_start: tuple[Move, ...]
    under_way: tuple[Move, ...]
    foreign: tuple[TopicPartition, ...]


def adopt(moves: Sequence[Move], snapshot: ClusterSnapshot) -> Adoption:
    """Compare a plan with the running reassignments (guard rail 3: a foreign move is one whose target is not the
    plan's). Raises MovesUnknown where the snapshot does not have them."""
    if snapshot.reassignments is None:
        raise MovesUnknown("no controller tells which replicas move")
    running: Mapping[TopicPartition, Assignment] = snapshot.reassignments
    wanted = {move.tp: move for move in moves}
    under_way = [m for m in moves if m.tp in running and running[m.tp].target == m.target]
    foreign = [tp for tp, a in sorted(running.items()) if tp not in wanted or a.target != wanted[tp].target]
    to_start = [
        m
        for m in moves
        if m.tp not in running and (view := snapshot.partition(m.tp)) is not None and view.replicas != m.target
    ]
    return Adoption(tuple(to_start), tuple(under_way), tuple(foreign))


def next_wave(
    to_start: Sequence[Move], under_way: Sequence[Move], snapshot: ClusterSnapshot, limit: int = MOVES_PER_BROKER
) -> list[Move]:
    """Choose the moves to start now: at most `limit` into and out of each broker, the least replicated first.

    A controller refuses a move to a broker that is down; such moves are held back.
    """
    away = {move.tp for move in held_back(to_start, snapshot)}
    load: dict[int, int] = {}
    for move in under_way:
        _count(load, move)

    def risk(move: Move) -> tuple[int, TopicPartition]:
        view = snapshot.partition(move.tp)
        return (len(view.isr) - len(view.replicas) if view else 0, move.tp)

    wave = []
    for move in sorted(to_start, key=risk):
        if move.tp not in away and all(load.get(b, 0) < limit for b in (*move.adding, *move.removing)):
            _count(load, move)
            wave.append(move)
    return wave


def held_back(to_start: Iterable[Move], snapshot: ClusterSnapshot) -> list[Move]:
    """The moves that cannot start now, because a broker that gets a replica is down."""
    return [move for move in to_start if not set(move.adding) <= set(snapshot.brokers)]


def _count(load: dict[int, int], move: Move) -> None:
    for broker in (*move.adding, *move.removing):
        load[broker] = load.get(broker, 0) + 1
