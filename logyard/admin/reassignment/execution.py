"""Carrying out a reassignment: plan documents, what is done and what runs, waves, and throttles; decisions are pure.

Done means: the replicas are the target, no reassignment of the partition runs, the ISR holds every target
(facts §36, guard rail 18; the leader is the operator's last step). A repeated run adopts moves that are
under way and equal the plan; a move whose topic has vanished is dropped alone.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.broker.errors import CorruptData, LogyardError
from logyard.broker.model import Assignment, TopicPartition

MOVES_PER_BROKER = 5


class StalePlan(LogyardError):
    """The cluster is not what the plan was made for; the text says in what."""


class ForeignReassignment(LogyardError):
    """Somebody else moves replicas; the text names the partitions."""


@dataclass(frozen=True, slots=True)
class Move:
    """One partition's replicas: where they are and where they shall be. `size`: bytes of one replica."""

    tp: TopicPartition
    replicas: tuple[int, ...]
    target: tuple[int, ...]
    size: int = 0

    def __str__(self) -> str:
        return str(self.tp)

    @property
    def adding(self) -> tuple[int, ...]:
        return tuple(b for b in self.target if b not in self.replicas)

    @property
    def removing(self) -> tuple[int, ...]:
        return tuple(b for b in self.replicas if b not in self.target)

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.tp.topic,
            "partition": self.tp.partition,
            "from": list(self.replicas),
            "replicas": list(self.target),
            "size": self.size,
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "Move":
        """Read what `as_json` wrote, or an entry of kafka-reassign-partitions' JSON. Raises CorruptData."""
        try:
            return cls(
                tp=TopicPartition(str(entry["topic"]), int(entry["partition"])),
                replicas=tuple(int(b) for b in entry.get("from") or ()),
                target=tuple(int(b) for b in entry["replicas"]),
                size=int(entry.get("size") or 0),
            )
        except (KeyError, TypeError, ValueError) as problem:
            raise CorruptData(f"move {entry!r}: topic, partition and replicas are expected ({problem})") from None


@dataclass(frozen=True, slots=True)
class Plan:
    """Moves bound to the cluster and the state they were made for."""

    cluster_id: str
    moves: tuple[Move, ...]
    taken_at_ms: int = 0

    def as_json(self, throttle: int | None = None) -> dict[str, Any]:
        """The plan document; `partitions` is what kafka-reassign-partitions reads. Times in seconds, sizes in bytes."""
        bytes_in, bytes_out = traffic(self.moves)
        slowest = max([*bytes_in.values(), *bytes_out.values()], default=0)
        return {
            "version": 1,
            "cluster_id": self.cluster_id,
            "taken_at_ms": self.taken_at_ms,
            "partitions": [move.as_json() for move in self.moves],
            "rollback": [
                {"topic": m.tp.topic, "partition": m.tp.partition, "replicas": list(m.replicas)} for m in self.moves
            ],
            "bytes_in": {str(broker): size for broker, size in sorted(bytes_in.items())},
            "bytes_out": {str(broker): size for broker, size in sorted(bytes_out.items())},
            "bytes_moved": sum(bytes_in.values()),
            "replicas_moved": sum(len(move.adding) for move in self.moves),
            "seconds_at_throttle": round(slowest / throttle, 1) if throttle else None,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any] | str) -> "Plan":
        """Read a plan document, or the JSON of Kafka's tool, which names no cluster and not where replicas were.

        Raises CorruptData.
        """
        try:
            content = json.loads(document) if isinstance(document, str) else document
            entries = content["partitions"]
            return cls(
                cluster_id=str(content.get("cluster_id") or ""),
                moves=tuple(Move.from_json(entry) for entry in entries),
                taken_at_ms=int(content.get("taken_at_ms") or 0),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            raise CorruptData(f"not a plan: a JSON object with a list 'partitions' is expected ({problem})") from None


def make_plan(snapshot: ClusterSnapshot, moves: Sequence[Move]) -> Plan:
    return Plan(snapshot.cluster_id, tuple(moves), snapshot.taken_at_ms)


def refuse_stale(plan: Plan, snapshot: ClusterSnapshot) -> None:
    """Refuse a plan unless each partition is where the plan found it, under way to its target, or there.

    What was approved is what is done: a partition that somebody has moved elsewhere since makes the whole plan stale.
    A plan written by hand does not say where replicas were, and is taken as it is. Raises StalePlan.
    """
    if plan.cluster_id and plan.cluster_id != snapshot.cluster_id:
        raise StalePlan(f"the plan is for cluster {plan.cluster_id}, the connection leads to {snapshot.cluster_id}")
    if snapshot.reassignments is None:
        raise StalePlan("no controller says which replicas are being moved: try again when there is one")
    for move in plan.moves:
        view = snapshot.partition(move.tp)
        if view is None or not move.replicas or move.tp in snapshot.reassignments:
            continue  # gone alone, unknown, or judged by `adopt`
        # As sets: a cancelled move may leave another order (KIP-455).
        if set(view.replicas) not in (set(move.replicas), set(move.target)):
            raise StalePlan(
                f"{move.tp} is on {list(view.replicas)}, and was on {list(move.replicas)} when the plan was made: "
                "plan again"
            )


def explicit_moves(snapshot: ClusterSnapshot, plan: Plan) -> list[Move]:
    """Fill in where the replicas of a hand-written plan are now, and drop moves that change nothing."""
    filled = []
    for move in plan.moves:
        view = snapshot.partition(move.tp)
        if view is None:
            raise CorruptData(f"plan: {move.tp} does not exist")
        filled.append(Move(move.tp, view.replicas, move.target, move.size))
    return [move for move in filled if move.replicas != move.target]


def traffic(moves: Iterable[Move]) -> tuple[dict[int, int], dict[int, int]]:
    """Bytes that come in and go out, by broker; a leader (the first replica) is what others copy from."""
    bytes_in: dict[int, int] = {}
    bytes_out: dict[int, int] = {}
    for move in moves:
        for broker in move.adding:
            bytes_in[broker] = bytes_in.get(broker, 0) + move.size
            if move.replicas:
                bytes_out[move.replicas[0]] = bytes_out.get(move.replicas[0], 0) + move.size
    return bytes_in, bytes_out


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a plan stands. `stuck` (a part of `running`): a target broker is not alive; `lost`: the topic is gone."""

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


def progress(moves: Sequence[Move], snapshot: ClusterSnapshot) -> Progress:
    """Look how far the moves are. Where it is not known what runs (no controller), nothing counts as done."""
    done, running, stuck, lost = [], [], [], []
    for move in moves:
        view = snapshot.partition(move.tp)
        if view is None:
            lost.append(move.tp)
        elif is_done(move, snapshot):
            done.append(move.tp)
        else:
            running.append(move.tp)
            if not set(move.target) <= set(snapshot.brokers):
                stuck.append(move.tp)
    return Progress(tuple(done), tuple(running), tuple(stuck), tuple(lost))


def is_done(move: Move, snapshot: ClusterSnapshot) -> bool:
    view = snapshot.partition(move.tp)
    if view is None or snapshot.reassignments is None or move.tp in snapshot.reassignments:
        return False
    return view.replicas == move.target and set(view.isr) == set(move.target)


@dataclass(frozen=True, slots=True)
class Adoption:
    """What a run finds of its plan: moves to start, moves under way that equal the plan, and those of others."""

    to_start: tuple[Move, ...]
    under_way: tuple[Move, ...]
    foreign: tuple[TopicPartition, ...]


def adopt(moves: Sequence[Move], snapshot: ClusterSnapshot) -> Adoption:
    """Compare a plan with what runs (guard rail 3: a foreign move is one whose target is not the plan's)."""
    running: Mapping[TopicPartition, Assignment] = snapshot.reassignments or {}
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
    """Choose what to start now: at most `limit` moves into and out of each broker, the worst replicated first.

    A controller refuses a move to a broker that is away; such moves are held back.
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
    """The moves that cannot start now, because a broker that gets a replica is away."""
    return [move for move in to_start if not set(move.adding) <= set(snapshot.brokers)]


def _count(load: dict[int, int], move: Move) -> None:
    for broker in (*move.adding, *move.removing):
        load[broker] = load.get(broker, 0) + 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run, for XCom: what was moved and where the leaders are. Times in seconds."""

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
