"""Moves of replicas, and plans: moves that are bound to the state of the cluster they were made for. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.broker.errors import CorruptData, LogyardError
from logyard.broker.model import TopicPartition


class StalePlan(LogyardError):
    """The cluster differs from the one that the plan was made for; the text says how."""


class BadPlan(CorruptData):
    """What was given is no plan, or one of partitions that do not exist."""


@dataclass(frozen=True, slots=True)
class Move:
    """The current and target replicas of one partition. `size`: bytes of one replica."""

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
        """Parse what `as_json` wrote, or an entry of kafka-reassign-partitions' JSON. Raises BadPlan."""
        try:
            return cls(
                tp=TopicPartition(str(entry["topic"]), int(entry["partition"])),
                replicas=brokers_of(entry.get("from") or ()),
                target=brokers_of(entry["replicas"]),
                size=int(entry.get("size") or 0),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as problem:
            raise BadPlan(f"move {entry!r}: topic, partition and replicas are expected ({problem})") from None


def brokers_of(listed: Any) -> tuple[int, ...]:
    """The ids in a list. Raises TypeError, ValueError: of the text `"12"`, brokers 1 and 2 would be made."""
    if not isinstance(listed, list | tuple) or any(isinstance(broker, bool | float) for broker in listed):
        raise TypeError("a list of brokers is expected")
    return tuple(int(broker) for broker in listed)


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

    def refuse_elsewhere(self, snapshot: ClusterSnapshot) -> None:
        """Raise StalePlan where the snapshot is of another cluster; a plan written by hand names none."""
        if self.cluster_id and self.cluster_id != snapshot.cluster_id:
            raise StalePlan(f"the plan is for cluster {self.cluster_id}, the connection leads to {snapshot.cluster_id}")

    @classmethod
    def from_json(cls, document: Mapping[str, Any] | str) -> "Plan":
        """Parse a plan document, or the JSON of Kafka's tool, which has neither the cluster nor the former replicas.

        Raises BadPlan.
        """
        try:
            content = json.loads(document) if isinstance(document, str) else document
            entries = content["partitions"]
            if not isinstance(entries, list | tuple):
                raise TypeError(f"not {type(entries).__name__}")
            return cls(
                cluster_id=str(content.get("cluster_id") or ""),
                moves=tuple(Move.from_json(entry) for entry in entries),
                taken_at_ms=int(content.get("taken_at_ms") or 0),
            )
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as problem:
            raise BadPlan(f"not a plan: a JSON object with a list 'partitions' is expected ({problem})") from None


def make_plan(snapshot: ClusterSnapshot, moves: Sequence[Move]) -> Plan:
    return Plan(snapshot.cluster_id, tuple(moves), snapshot.taken_at_ms)


def refuse_stale(plan: Plan, snapshot: ClusterSnapshot) -> None:
    """Raise StalePlan unless each partition has the plan's former replicas, is moving to its target, or is there.

    Only approved moves are done: if somebody has moved a partition elsewhere, the whole plan is stale. A plan written
    by hand does not name the current replicas, and is accepted as it is.
    """
    plan.refuse_elsewhere(snapshot)
    if snapshot.reassignments is None:
        raise StalePlan("no controller says which replicas are being moved: try again when there is one")
    for move in plan.moves:
        view = snapshot.partition(move.tp)
        if view is None or not move.replicas or move.tp in snapshot.reassignments:
            continue  # deleted, unknown, or judged by `adopt`
        # As sets: a cancelled move may leave another order (KIP-455).
        if set(view.replicas) not in (set(move.replicas), set(move.target)):
            raise StalePlan(
                f"{move.tp} is on {list(view.replicas)}, and was on {list(move.replicas)} when the plan was made: "
                "plan again"
            )


def explicit_moves(snapshot: ClusterSnapshot, plan: Plan) -> list[Move]:
    """Fill in the current replicas of a hand-written plan, and drop moves that change nothing."""
    filled = []
    for move in plan.moves:
        view = snapshot.partition(move.tp)
        if view is None:
            raise BadPlan(f"plan: {move.tp} does not exist")
        filled.append(Move(move.tp, view.replicas, move.target, move.size))
    return [move for move in filled if move.replicas != move.target]


def traffic(moves: Iterable[Move]) -> tuple[dict[int, int], dict[int, int]]:
    """Bytes in and out, by broker; replicas are copied from the leader (the first replica)."""
    bytes_in: dict[int, int] = {}
    bytes_out: dict[int, int] = {}
    for move in moves:
        for broker in move.adding:
            bytes_in[broker] = bytes_in.get(broker, 0) + move.size
            if move.replicas:
                bytes_out[move.replicas[0]] = bytes_out.get(move.replicas[0], 0) + move.size
    return bytes_in, bytes_out
