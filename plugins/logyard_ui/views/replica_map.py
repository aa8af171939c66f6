"""The replica map: how many replicas and leaders of each topic each broker has."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from logyard.plugins.logyard_ui.dependencies import REQUIRED_S, RequestedCluster
from logyard.plugins.logyard_ui.responses.responses import required, respond

router = APIRouter()


@router.get("/replicas")
async def replicas(request: Request, cluster: RequestedCluster) -> Response:
    """Replicas and leaders by topic and broker."""
    return respond(request, required(await cluster.state(REQUIRED_S)).replicas)
