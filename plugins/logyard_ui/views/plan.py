"""A preview of what `reassign_replicas` would move: planned like its first task does, from what the page has seen."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from logyard.admin.cluster.snapshot import ClusterSnapshot, ReplicaSize
from logyard.admin.errors import LogyardError
from logyard.admin.reassignment.disks import read_capacities
from logyard.admin.reassignment.execution import make_plan
from logyard.admin.reassignment.forecast import forecast
from logyard.admin.reassignment.planner import Goals, PlanInput, plan_moves
from logyard.plugins.logyard_ui.views.reassignments import Running

# A plan for so many takes a second or two.
PARTITIONS_MAX = 30_000


class BadQuestion(LogyardError):
    """What was asked for makes no sense on this cluster; the text says what would."""


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """The goals. `throttle`: bytes per second, for the estimate; `limit`: moves in the answer."""

    topics: tuple[str, ...] = ()
    drain: tuple[int, ...] = ()
    replication_factor: int | None = None
    balance: bool = False
    balance_disk: bool = False
    throttle: int | None = None
    limit: int = 1000

    def goals(self) -> Goals:
        return Goals(frozenset(self.drain), self.replication_factor, self.balance, self.balance_disk)


def preview(
    question: PlanQuestion,
    snapshot: ClusterSnapshot,
    running: Running | None,
    sizes: Sequence[ReplicaSize],
    disk_capacities: int | tuple[tuple[int, int], ...] | None = None,
) -> dict[str, Any]:
    """The plan document with its forecast. Raises BadQuestion, BadSettings, PlanImpossible, DiskTooFull."""
    missing = [topic for topic in question.topics if topic not in snapshot.topics]
    if missing:
        raise BadQuestion(f"topic {missing[0]} does not exist")
    unknown = [broker for broker in question.drain if broker not in snapshot.brokers]
    if unknown:
        raise BadQuestion(f"broker {unknown[0]} is not alive: what is on it is moved anyway, without naming it")
    now = replace(snapshot, reassignments=running)
    capacities = read_capacities(disk_capacities, now.brokers)
    start = PlanInput.of(now, list(question.topics) or None, sizes, capacities)
    if len(start.replicas) > PARTITIONS_MAX:
        raise BadQuestion(
            f"{len(start.replicas)} partitions are too many to be planned for here ({PARTITIONS_MAX} at most): "
            "name topics, or start the run without a preview"
        )
    moves = plan_moves(start, question.goals())
    document = make_plan(now, moves).as_json(question.throttle)
    return document | {
        "partitions": document["partitions"][: question.limit],
        "rollback": document["rollback"][: question.limit],
        "partitions_total": len(moves),
        "complete": len(moves) <= question.limit,
        "throttle": question.throttle,
        "brokers": forecast(now, sizes, moves, capacities),
        "running": None if running is None else bool(running),
    }
