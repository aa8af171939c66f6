"""The page's routes: GET only, each for logged-in users who may see plugins; actions go through Airflow's own API."""

from pathlib import Path
from typing import Annotated, Any

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import get_user, requires_access_view
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query
from fastapi.responses import FileResponse

from logyard.admin.errors import LogyardError
from logyard.operators.hooks.cluster import ClusterHook, read_connection
from logyard.plugins.logyard_ui.looks import Looks

_STATIC = Path(__file__).parent / "static"

ConnId = Annotated[str, Query(min_length=1, max_length=250, pattern=r"^[\w.\-]+$")]


def make_app() -> FastAPI:
    """The FastAPI application that Airflow mounts under /logyard."""
    app = FastAPI(title="Logyard", description="Clusters of partitioned logs, as this Airflow's connections name them.")
    app.include_router(make_router(Looks(ClusterHook.connector)))
    return app


def make_router(looks: Looks) -> APIRouter:
    """All routes; every one is closed to whoever is not logged in."""
    router = APIRouter(dependencies=[Depends(get_user), Depends(requires_access_view(AccessView.PLUGINS))])

    @router.get("/api/cluster")
    def cluster(conn_id: ConnId = ClusterHook.default_conn_name) -> dict[str, Any]:
        """Brokers, controller, topics, partitions with leader and ISR, what is under-replicated or offline."""
        try:
            return looks.cluster(conn_id, read_connection(_connection(conn_id)))
        except LogyardError as problem:
            raise HTTPException(502, str(problem)) from None

    @router.get("/view.js", include_in_schema=False)
    def view() -> FileResponse:
        return FileResponse(_STATIC / "view.js", media_type="text/javascript", headers={"Cache-Control": "no-cache"})

    return router


def _connection(conn_id: str) -> Any:
    """The connection, if it is one of ours: nobody makes this server talk to other connections' hosts."""
    try:
        connection = ClusterHook.get_connection(conn_id)
    except Exception:  # Airflow has several ways to say that there is none
        connection = None
    if connection is None or connection.conn_type != ClusterHook.conn_type:
        raise HTTPException(404, f"there is no connection {conn_id} of type {ClusterHook.conn_type}")
    return connection
