"""The page's FastAPI application: GET only, for users who are logged in and may see plugins.

Actions go through Airflow's own API, so that its permissions decide and its audit log records them.
"""

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import get_user, requires_access_view
from fastapi import Depends, FastAPI

from logyard.operators.hooks.cluster import ClusterHook
from logyard.plugins.logyard_ui import static_files
from logyard.plugins.logyard_ui.cluster.clusters import CachedClusters
from logyard.plugins.logyard_ui.dependencies import Services
from logyard.plugins.logyard_ui.responses.responses import add_handlers
from logyard.plugins.logyard_ui.views import (
    actions,
    api_docs,
    broker_settings,
    brokers,
    compare,
    connections,
    findings,
    groups,
    history,
    overview,
    plan,
    polls,
    reassignments,
    records,
    replica_map,
    search,
    security,
    topic,
    topic_check,
    topics,
)

_API = (
    overview,
    search,
    findings,
    topics,
    topic,
    topic_check,
    replica_map,
    brokers,
    broker_settings,
    security,
    compare,
    reassignments,
    plan,
    groups,
    history,
    records,
    connections,
    actions,
    polls,
)


def make_app(services: Services | None = None) -> FastAPI:
    """The application that Airflow mounts under /logyard."""
    app = FastAPI(
        title="Logyard",
        description="Clusters of partitioned logs, as this Airflow's connections name them. Everything is read only.",
        # FastAPI's own documentation pages are open to everybody, and load scripts from other servers.
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.services = services or Services(CachedClusters(ClusterHook.connector))
    add_handlers(app)
    closed = [Depends(get_user), Depends(requires_access_view(AccessView.PLUGINS))]
    for view in _API:
        app.include_router(view.router, prefix="/api", dependencies=closed)
    for module in (static_files, api_docs):
        app.include_router(module.router, dependencies=closed)
    return app
