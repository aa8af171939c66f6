"""The progress of moves. Pure: each move is compared with a snapshot that holds the reassignments.

Two questions, one answer for each move (`MoveState`). *As wanted* is what kafka-reassign-partitions calls completed: no
reassignment of the partition runs and the replicas are the target. *Done* is what a plan waits for: as wanted, and the
ISR holds every target (facts §36, guard rail 18; electing the preferred leader is the last step of a plan).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logyard.admin.cluster.snapshot import ClusterSnapshot, ReplicaSize
from logyard.admin.quantities import plural, size
from logyard.admin.reassignment.plan import Move
from logyard.broker.model import Assignment, TopicPartition


@dataclass(frozen=True, slots=True)
class MoveState:
    """The state of one move.

    `current`: the partition's replicas now, empty if it is gone or unknown. `is_running`: a reassignment of it runs;
    None if no controller answered. `is_lost`: the partition is gone. `target_away`: a broker of the target is not
    alive.
    """

    move: Move
    current: tuple[int, ...] = ()
    is_running: bool | None = False
    in_sync: frozenset[int] = frozenset()
    is_lost: bool = False
    target_away: bool = False

    @property
    def is_as_wanted(self) -> bool:
        return self.is_running is False and self.current == self.move.target

    @property
    def is_done(self) -> bool:
        return self.is_as_wanted and self.in_sync == set(self.move.target)


def move_states(moves: Iterable[Move], snapshot: ClusterSnapshot) -> list[MoveState]:
    """Compare moves with the cluster. If the snapshot has no reassignments (no controller), no move counts as done.

    A partition counts as lost if the snapshot says that its topic is missing, or has the topic without it: let
    presence.py settle that. A topic that the snapshot only lacks is unknown to one broker.
    """
    asked = list(moves)
    views = dict(snapshot.partitions(sorted({move.tp.topic for move in asked})))
    running, live, missing = snapshot.reassignments, set(snapshot.brokers), set(snapshot.missing)
    found = []
    for move in asked:
        view = views.get(move.tp)
        assigned = running.get(move.tp) if running is not None else None
        topic = move.tp.topic
        if view is None and assigned is None and (topic in missing or topic in snapshot.topics):
            found.append(MoveState(move, is_lost=True))
            continue
        found.append(
            MoveState(
                move,
                current=assigned.replicas if assigned is not None else view.replicas if view is not None else (),
                is_running=None if running is None else assigned is not None,
                in_sync=frozenset(view.isr) if view is not None else frozenset(),
                target_away=not set(move.target) <= live,
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class PlanProgress:
    """The state of a plan. `stuck` (a part of `running`): a target broker is not alive; `lost`: the topic is gone."""

    done: tuple[TopicPartition, ...] = ()
    running: tuple[TopicPartition, ...] = ()
    stuck: tuple[TopicPartition, ...] = ()
    lost: tuple[TopicPartition, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "done": [str(tp) for tp in self.done],
            "running": [str(tp) for tp in self.running],
            "stuck": [str(tp) for tp in self.stuck],
            "lost": [str(tp) for tp in self.lost],
        }


def plan_progress(moves: Sequence[Move], snapshot: ClusterSnapshot) -> PlanProgress:
    """Sort the moves by their state; a move that is not known to be done counts as running."""
    states = move_states(moves, snapshot)
    left = [state for state in states if not state.is_lost and not state.is_done]
    return PlanProgress(
        done=tuple(state.move.tp for state in states if not state.is_lost and state.is_done),
        running=tuple(state.move.tp for state in left),
        stuck=tuple(state.move.tp for state in left if state.target_away),
        lost=tuple(state.move.tp for state in states if state.is_lost),
    )


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """How much of a reassignment is copied: partitions, and bytes of the new replicas of the total that they need."""

    partitions: int
    done: int
    bytes: int = 0
    bytes_there: int = 0

    def __str__(self) -> str:
        text = f"{self.done} of {self.partitions} partitions are in place"
        if self.bytes:
            text += f", {self.bytes_there / 1e6:,.1f} of {self.bytes / 1e6:,.1f} MB of the others are copied"
        return text


def copy_progress(
    states: Sequence[MoveState], running: Mapping[TopicPartition, Assignment], sizes: Iterable[ReplicaSize]
) -> CopyProgress:
    """Count the moves that no longer run, and compare the sizes of new replicas with that of the largest replica."""
    held: dict[TopicPartition, dict[int, int]] = {}
    for one in sizes:
        if not one.is_future:
            held.setdefault(one.tp, {})[one.broker] = one.size
    wanted = there = 0
    for tp in (state.move.tp for state in states):
        for broker in running[tp].adding if tp in running else ():
            largest = max(held.get(tp, {}).values(), default=0)
            wanted += largest
            there += held.get(tp, {}).get(broker, 0)
    return CopyProgress(len(states), sum(not state.is_running for state in states), wanted, there)


@dataclass(frozen=True, slots=True)
class ReassignmentResult:
    """A finished run, for XCom: the moves and the leaders. Times in seconds."""

    moved: tuple[TopicPartition, ...]
    lost: tuple[TopicPartition, ...] = ()
    leaders: Mapping[TopicPartition, int] = field(default_factory=dict)
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "moved": [str(tp) for tp in self.moved],
            "lost": [str(tp) for tp in self.lost],
            "leaders": {str(tp): leader for tp, leader in sorted(self.leaders.items())},
            "seconds": round(self.seconds, 3),
        }


def wave_line(wave: Sequence[Move], moves: Iterable[Move], state: PlanProgress) -> str:
    """The moves that run now and the bytes that they copy, of those that are left."""
    running = set(state.running)
    left = [move for move in moves if move.tp in running]
    copied, whole = (sum(move.size * len(move.adding) for move in some) for some in (wave, left))
    return f"this wave: {plural(len(wave), 'move')}, {size(copied)} to copy of {size(whole)} that are left"
