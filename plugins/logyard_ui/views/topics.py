"""The list of topics, and the bytes of each."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from logyard.plugins.logyard_ui.dependencies import REQUIRED_S, RequestedCluster
from logyard.plugins.logyard_ui.responses.document import Document
from logyard.plugins.logyard_ui.responses.responses import required, respond

router = APIRouter()


@router.get("/topics")
async def topics(request: Request, cluster: RequestedCluster) -> Response:
    """All topics, one row each, with a version: an equal version means an equal list."""
    return respond(request, required(await cluster.state(REQUIRED_S)).topics)


@router.get("/sizes")
async def sizes(request: Request, cluster: RequestedCluster) -> Response:
    """Bytes by topic and by broker."""
    snapshot = required(await cluster.state(REQUIRED_S)).snapshot
    found = required(await cluster.sizes(snapshot, REQUIRED_S))
    return respond(request, found.document or Document.plain({}))
