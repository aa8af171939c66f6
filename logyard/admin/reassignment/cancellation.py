"""Which running moves may be cancelled, and which throttle settings are left over. Pure.

A cancelled move goes back to the partition's former replicas. If none of them is alive and in sync, nobody could lead
the partition (KAFKA-14424): such a move is not cancelled, and neither is one that was replaced by another meanwhile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logyard.admin.cluster.snapshot import ClusterSnapshot, ConfigValue
from logyard.admin.reassignment.plan import Move
from logyard.broker.model import Assignment, TopicPartition

LEADERLESS = "none of its former replicas {} is known to be alive and in sync: start one of these brokers first"
OTHER_TARGET = "it now moves to {}, not to {}: check again"


@dataclass(frozen=True, slots=True)
class Cancellation:
    """Moves to cancel, each from its target back to its former replicas, and moves to keep, with the reason."""

    moves: tuple[Move, ...] = ()
    kept: Mapping[TopicPartition, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "cancelled": [
                {
                    "topic": move.tp.topic,
                    "partition": move.tp.partition,
                    "target": list(move.replicas),
                    "replicas": list(move.target),
                }
                for move in self.moves
            ],
            "kept": {str(tp): reason for tp, reason in sorted(self.kept.items())},
        }


def plan_cancellation(
    snapshot: ClusterSnapshot,
    running: Mapping[TopicPartition, Assignment],
    topics: Sequence[str] = (),
    expected: Mapping[TopicPartition, Sequence[int]] | None = None,
) -> Cancellation:
    """Sort the running moves of those topics (of all topics if none is named).

    :param expected: only these, if they still move to these targets.
    """
    moves, kept = [], {}
    for tp, placed in sorted(running.items()):
        if (topics and tp.topic not in topics) or (expected is not None and tp not in expected):
            continue
        if expected is not None and tuple(expected[tp]) != placed.target:
            kept[tp] = OTHER_TARGET.format(list(placed.target), list(expected[tp]))
        elif would_be_leaderless(snapshot, tp, placed):
            kept[tp] = LEADERLESS.format(list(placed.origin))
        else:
            moves.append(Move(tp, placed.target, placed.origin))
    return Cancellation(tuple(moves), kept)


def would_be_leaderless(snapshot: ClusterSnapshot, tp: TopicPartition, placed: Assignment) -> bool:
    """Whether none of the former replicas could lead, or the snapshot does not know the partition."""
    view = snapshot.partition(tp)
    return view is None or not set(placed.origin) & set(view.isr) & set(snapshot.brokers)


def left_over(configs: Mapping[str, ConfigValue], keys: Sequence[str]) -> list[str]:
    """The throttle keys that are set on this resource; `*` throttles everything, so it was not set for these moves."""
    return [key for key in keys if key in configs and configs[key].is_override and configs[key].value not in ("", "*")]
