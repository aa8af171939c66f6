"""The overview of one cluster: its health, its controller, and what is wrong."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from logyard.admin.quantities import plural
from logyard.admin.settings import ClusterSettings
from logyard.operators.hooks.cluster import ClusterHook
from logyard.plugins.logyard_ui.cache.cache import Cached
from logyard.plugins.logyard_ui.cluster.outage import outage
from logyard.plugins.logyard_ui.cluster.progress import Running
from logyard.plugins.logyard_ui.cluster.state import ClusterState
from logyard.plugins.logyard_ui.dependencies import DETAIL_S, REQUIRED_S, ConnId, RequestedCluster
from logyard.plugins.logyard_ui.responses.responses import required, respond_json

OK, WARNING, CRITICAL, UNREACHABLE = "ok", "warning", "critical", "unreachable"


router = APIRouter()


@router.get("/overview")
async def overview(
    request: Request, cluster: RequestedCluster, conn_id: ConnId = ClusterHook.default_conn_name
) -> Response:
    """Health, the controller and those before it, counts, problems. Also answered where the cluster does not answer."""
    cached = await cluster.state(REQUIRED_S)
    if cached.pending:
        required(cached)
    await cluster.refresh_epoch()
    moving = await cluster.running(DETAIL_S)
    running = None if moving.problem else moving.value
    return respond_json(request, overview_json(conn_id, cluster.settings, cached, running))


def overview_json(
    conn_id: str, settings: ClusterSettings, cached: Cached[ClusterState], running: Running | None
) -> dict[str, Any]:
    """The last state that was read, also where the cluster does not answer now; nulls where it never did."""
    state = cached.value
    out = None
    if cached.problem is not None:
        out = outage(cached.problem, settings, None if state is None else state.snapshot)
    head = {
        "conn_id": conn_id,
        "reachable": out is None,
        "problem": None if out is None else out.problem,
        "outage": None if out is None else out.as_json(cached.taken_ms),
        "taken_at_ms": cached.taken_ms,
        "look_ms": round(cached.took_s * 1000, 1),
        "every_ms": round(cached.every_s * 1000),
    }
    facts = _NOTHING if state is None else _facts(state, running)
    health, findings = (UNREACHABLE, []) if state is None else _health(state)
    if out is not None:
        health, findings = UNREACHABLE, [out.problem]
    return head | facts | {"health": health, "findings": findings}


_NOTHING: dict[str, Any] = dict.fromkeys(
    (
        "cluster_id",
        "kind",
        "controller",
        "brokers",
        "topics",
        "partitions",
        "replicas",
        "under_replicated",
        "offline",
        "not_preferred",
        "reassigning",
        "versions",
    )
) | {"controllers": [], "troubles": []}


def _facts(state: ClusterState, running: Running | None) -> dict[str, Any]:
    counts, snapshot = state.counts, state.snapshot
    return {
        "cluster_id": snapshot.cluster_id,
        "kind": state.controller.kind,
        "controller": _controller(state),
        "controllers": list(state.controllers),
        "brokers": {
            "alive": len(snapshot.brokers),
            "expected": len(state.expected) or None,
            "missing": _missing(state),
        },
        "topics": len(counts.rows),
        "partitions": counts.totals.partitions,
        "replicas": counts.totals.replicas,
        "under_replicated": counts.totals.under_replicated,
        "offline": counts.totals.offline,
        "not_preferred": counts.totals.not_preferred,
        "reassigning": None if running is None else len(running),
        "troubles": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "leader": partition.leader,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "offline": partition.offline,
                "adding": list(partition.adding),
            }
            for partition in counts.unhealthy
        ],
        "versions": {"topics": state.topics.version, "replicas": state.replicas.version},
    }


def _controller(state: ClusterState) -> dict[str, Any] | None:
    """Null where the cluster does not say who it is; an entry without an id where there is none."""
    if not state.controller.known or not state.controllers:
        return None
    current = state.controllers[0]
    return {"id": current["id"], "alive": current["id"] is not None} | {
        name: current[name] for name in ("epoch", "since_ms")
    }


def _missing(state: ClusterState) -> list[int]:
    """Brokers that are not alive, though the connection names them or they have replicas."""
    return sorted({*state.expected, *state.counts.columns} - set(state.snapshot.brokers))


def _health(state: ClusterState) -> tuple[str, list[str]]:
    counts, critical, warning = state.counts, [], []
    if state.controller.known and state.controller.id is None:
        critical.append("no controller")
    if counts.totals.offline:
        critical.append(f"{plural(counts.totals.offline, 'partition has', 'partitions have')} no living leader")
    if counts.totals.under_replicated:
        warning.append(f"{plural(counts.totals.under_replicated, 'partition is', 'partitions are')} under-replicated")
    missing = _missing(state)
    if missing:
        named = ", ".join(map(str, missing[:10])) + (" …" if len(missing) > 10 else "")
        warning.append(f"{'broker' if len(missing) == 1 else 'brokers'} {named} missing")
    return CRITICAL if critical else WARNING if warning else OK, critical + warning
