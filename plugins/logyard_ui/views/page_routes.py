"""Which clusters there are, what acts on them, and what watching them costs."""

from typing import Any

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Request
from fastapi.responses import Response

from logyard.operators.hooks.cluster import ClusterHook
from logyard.plugins.logyard_ui.access.connections import Known, may_see
from logyard.plugins.logyard_ui.cache.cache import PartCost, Poll
from logyard.plugins.logyard_ui.responses.responses import answer_json
from logyard.plugins.logyard_ui.views.cluster_routes import ConnId, Watched, page_of

router = APIRouter(prefix="/api")


@router.get("/connections")
def connections(request: Request, user: GetUserDep) -> Response:
    """The connections of type logyard that the user may see."""
    listing = page_of(request).connections.listing(user)
    return answer_json(
        request, {"connections": [_connection(known) for known in listing.known], "complete": listing.complete}
    )


@router.get("/actions")
def actions(
    request: Request, user: GetUserDep, cluster: Watched, conn_id: ConnId = ClusterHook.default_conn_name
) -> Response:
    """The DAGs that act on this cluster and that the user may see; started by Airflow's own API."""
    return answer_json(request, {"actions": page_of(request).actions.of(conn_id, user)})


@router.get("/polls")
def polls(request: Request, user: GetUserDep) -> Response:
    """How often clusters were asked, and how long that took."""
    clusters = {
        conn_id: cluster.poll
        for conn_id, cluster in page_of(request).clusters.known().items()
        if may_see(conn_id, user)
    }
    return answer_json(
        request,
        {
            "polls": [
                _cost(conn_id, poll, part, cost)
                for conn_id, poll in sorted(clusters.items())
                for part, cost in sorted(poll.costs().items())
            ],
            "clusters": len(clusters),
            "threads": sum(poll.threads for poll in clusters.values()),
        },
    )


def _connection(known: Known) -> dict[str, Any]:
    return {
        "conn_id": known.conn_id,
        "bootstrap": ",".join(known.settings.bootstrap) if known.settings is not None else None,
        "description": known.description,
        "problem": known.problem or None,
    }


def _cost(conn_id: str, poll: Poll, part: str, cost: PartCost) -> dict[str, Any]:
    return {
        "conn_id": conn_id,
        "part": part,
        "asked": cost.asked,
        "looks": cost.looks,
        "failures": cost.failures,
        "last_ms": round(cost.last_s * 1000, 1) if cost.looks else None,
        "mean_ms": round(cost.total_s * 1000 / cost.looks, 1) if cost.looks else None,
        "age_ms": round(poll.age_s(cost) * 1000) if cost.looks else None,
        "every_ms": round(cost.every_s * 1000) if cost.looks else None,
        "kept": cost.kept,
    }
