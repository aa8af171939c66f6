"""The reassignments that run now, and how far each is by bytes."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from logyard.admin.cluster.snapshot import ClusterSnapshot, PartitionView
from logyard.broker.model import Assignment, TopicPartition
from logyard.plugins.logyard_ui.cluster.progress import Progress, Running
from logyard.plugins.logyard_ui.dependencies import OPTIONAL_S, REQUIRED_S, RequestedCluster
from logyard.plugins.logyard_ui.responses.optional_parts import OptionalParts
from logyard.plugins.logyard_ui.responses.responses import required, respond_in_thread

MOVES_MAX = 1000

router = APIRouter()


@router.get("/reassignments")
async def reassignments(request: Request, cluster: RequestedCluster) -> Response:
    """The reassignments that run now, whoever started them, and how far they are by bytes."""
    snapshot, parts = required(await cluster.state(REQUIRED_S)).snapshot, OptionalParts()
    cached = await cluster.running(REQUIRED_S)
    parts.take("reassignments", cached)
    running = None if cached.problem is not None else cached.value
    progress = None
    if running:
        progress = parts.take("sizes", await cluster.progress(running, snapshot, OPTIONAL_S))
    rest = {"taken_at_ms": cached.taken_ms} | parts.as_json()
    return await respond_in_thread(request, lambda: moves_json(running, progress, snapshot) | rest)


def moves_json(running: Running | None, progress: Progress | None, snapshot: ClusterSnapshot) -> dict[str, Any]:
    """The sums over all moves, and the first MOVES_MAX of them one by one. `running` None: no controller answers."""
    if running is None:
        return {"running": None, "moves": [], "moves_total": None, **_sums([], None)}
    views = dict(snapshot.partitions(list({tp.topic for tp in running})))
    entries = [_move(tp, assignment, progress, views.get(tp), snapshot) for tp, assignment in sorted(running.items())]
    return {
        "running": bool(entries),
        "moves": entries[:MOVES_MAX],
        "moves_total": len(entries),
        **_sums(entries, progress.bytes_per_s if progress is not None else None),
    }


def _move(
    tp: TopicPartition,
    assignment: Assignment,
    progress: Progress | None,
    view: PartitionView | None,
    snapshot: ClusterSnapshot,
) -> dict[str, Any]:
    leader, isr = (view.leader, view.isr) if view is not None else (-1, ())
    caught_up = [broker for broker in assignment.adding if broker in isr]
    total = done = None
    if progress is not None and leader in progress.sizes.held.get(tp, {}):
        size = progress.sizes.held[tp][leader].size
        total = size * len(assignment.adding)
        # A replica in sync has all bytes, even if the sizes were read before it had.
        done = sum(size if b in caught_up else min(progress.added.get((tp, b), 0), size) for b in assignment.adding)
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "replicas": list(assignment.replicas),
        "adding": list(assignment.adding),
        "removing": list(assignment.removing),
        "target": list(assignment.target),
        "leader": leader,
        "isr": list(isr),
        "bytes_total": total,
        "bytes_done": done,
        "progress": _share(done, total),
        "caught_up": caught_up,
        "waits_for": [broker for broker in assignment.target if broker not in snapshot.brokers],
    }


def _sums(entries: list[dict[str, Any]], rate: float | None) -> dict[str, Any]:
    known = [entry for entry in entries if entry["bytes_total"] is not None]
    total = sum(entry["bytes_total"] for entry in known) if known else None
    done = sum(entry["bytes_done"] for entry in known) if known else None
    left = None if total is None or done is None else total - done
    return {
        "bytes_total": total,
        "bytes_done": done,
        "progress": _share(done, total),
        "bytes_per_s": None if rate is None else round(rate),
        "seconds_left": round(left / rate) if left is not None and rate else None,
    }


def _share(done: int | None, total: int | None) -> float | None:
    if done is None or total is None:
        return None
    return round(done / total, 4) if total else 1.0
