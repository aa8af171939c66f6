"""What the page costs the clusters: how often each was read, and how long that took."""

from typing import Any

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Request
from fastapi.responses import Response

from logyard.plugins.logyard_ui.access.connections import may_see
from logyard.plugins.logyard_ui.cache.cache import ClusterCache, QueryCost
from logyard.plugins.logyard_ui.dependencies import services_of
from logyard.plugins.logyard_ui.responses.responses import respond_json

router = APIRouter()


@router.get("/polls")
def polls(request: Request, user: GetUserDep) -> Response:
    """How often clusters were read, and how long that took."""
    caches = {
        conn_id: cluster.cache
        for conn_id, cluster in services_of(request).clusters.by_connection().items()
        if may_see(conn_id, user)
    }
    return respond_json(
        request,
        {
            "polls": [
                _cost(conn_id, cache, name, cost)
                for conn_id, cache in sorted(caches.items())
                for name, cost in sorted(cache.costs().items())
            ],
            "clusters": len(caches),
            "threads": sum(cache.threads for cache in caches.values()),
        },
    )


def _cost(conn_id: str, cache: ClusterCache, name: str, cost: QueryCost) -> dict[str, Any]:
    return {
        "conn_id": conn_id,
        "part": name,
        "asked": cost.requests,
        "looks": cost.reads,
        "failures": cost.failures,
        "last_ms": round(cost.last_s * 1000, 1) if cost.reads else None,
        "mean_ms": round(cost.total_s * 1000 / cost.reads, 1) if cost.reads else None,
        "age_ms": round(cache.age_s(cost) * 1000) if cost.reads else None,
        "every_ms": round(cost.every_s * 1000) if cost.reads else None,
        "kept": cost.kept,
    }
