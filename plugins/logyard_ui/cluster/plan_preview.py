"""A preview of what `reassign_replicas` would move: planned as its first task does, from the cached state."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from logyard.admin.cluster.snapshot import ClusterSnapshot, LogDirs
from logyard.admin.errors import LogyardError
from logyard.admin.reassignment.disks import read_capacities
from logyard.admin.reassignment.forecast import forecast
from logyard.admin.reassignment.plan import make_plan
from logyard.admin.reassignment.planner import Goals, PlanInput, plan_moves
from logyard.admin.reassignment.space import refuse_overfull, room, warnings
from logyard.admin.reassignment.unsized import refuse_unsized, unsized_lines
from logyard.plugins.logyard_ui.cluster.progress import Running

# A plan for this many takes one or two seconds.
PARTITIONS_MAX = 30_000


class BadPlanRequest(LogyardError):
    """The request cannot be planned on this cluster; the text says what can."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The goals. `throttle`: bytes per second, for the estimate; `limit`: the most moves in the answer."""

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
    request: PlanRequest,
    snapshot: ClusterSnapshot,
    running: Running | None,
    dirs: LogDirs,
    disk_capacities: int | tuple[tuple[int, int], ...] | None = None,
    untold: Mapping[int, str] = {},
) -> dict[str, Any]:
    """The plan document with its forecast. `untold`: the brokers that do not tell what they hold, and why.

    Raises BadPlanRequest, BadSettings, PlanImpossible, DiskTooFull, SizesUnknown.
    """
    missing = [topic for topic in request.topics if topic not in snapshot.topics]
    if missing:
        raise BadPlanRequest(f"topic {missing[0]} does not exist")
    unknown = [broker for broker in request.drain if broker not in snapshot.brokers]
    if unknown:
        raise BadPlanRequest(f"broker {unknown[0]} is not alive: its replicas are moved anyway, do not name it")
    now = replace(snapshot, reassignments=running)
    capacities = read_capacities(disk_capacities, now.brokers)
    start = PlanInput.of(now, list(request.topics) or None, dirs.replicas, capacities)
    if len(start.replicas) > PARTITIONS_MAX:
        raise BadPlanRequest(
            f"{len(start.replicas)} partitions are too many for a preview ({PARTITIONS_MAX} at most): "
            "name topics, or start the run without a preview"
        )
    moves = plan_moves(start, request.goals())
    refuse_unsized(start, moves, untold, balance_disk=request.balance_disk)
    disks = room(dirs.directories, dirs.replicas, moves)
    if not capacities:
        refuse_overfull(disks)
    document = make_plan(now, moves).as_json(request.throttle)
    return document | {
        "partitions": document["partitions"][: request.limit],
        "rollback": document["rollback"][: request.limit],
        "partitions_total": len(moves),
        "complete": len(moves) <= request.limit,
        "throttle": request.throttle,
        "brokers": forecast(now, dirs.replicas, moves, capacities, untold),
        "disks": disks,
        "warnings": [*warnings(disks), *unsized_lines(start, moves, untold)],
        "running": None if running is None else bool(running),
    }
