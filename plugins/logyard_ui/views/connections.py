"""The clusters that can be chosen."""

from typing import Any

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Request
from fastapi.responses import Response

from logyard.plugins.logyard_ui.access.connections import ClusterConnection
from logyard.plugins.logyard_ui.dependencies import services_of
from logyard.plugins.logyard_ui.responses.responses import respond_json

router = APIRouter()


@router.get("/connections")
def connections(request: Request, user: GetUserDep) -> Response:
    """The connections of type logyard that the user may see."""
    listing = services_of(request).connections.listing(user)
    found = [_connection(connection) for connection in listing.connections]
    return respond_json(request, {"connections": found, "complete": listing.complete})


def _connection(connection: ClusterConnection) -> dict[str, Any]:
    settings = connection.settings
    return {
        "conn_id": connection.conn_id,
        "bootstrap": ",".join(settings.bootstrap) if settings is not None else None,
        "description": connection.description,
        "problem": connection.problem or None,
    }
