"""The page's application: GET only, closed to whoever is not logged in and may not see plugins.

Actions go through Airflow's own API, so that its permissions decide and its audit log records.
"""

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import get_user, requires_access_view
from fastapi import Depends, FastAPI

from logyard.operators.hooks.cluster import ClusterHook
from logyard.plugins.logyard_ui import static_files
from logyard.plugins.logyard_ui.cluster.clusters import Clusters
from logyard.plugins.logyard_ui.dependencies import Page
from logyard.plugins.logyard_ui.responses.responses import add_handlers
from logyard.plugins.logyard_ui.views import cluster_routes, page_routes


def make_app(page: Page | None = None) -> FastAPI:
    """The FastAPI application that Airflow mounts under /logyard."""
    app = FastAPI(
        title="Logyard",
        description="Clusters of partitioned logs, as this Airflow's connections name them. Everything is read only.",
        # FastAPI's own pages of this kind are open to everybody, and fetch their scripts elsewhere.
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.page = page or Page(Clusters(ClusterHook.connector))
    add_handlers(app)
    closed = [Depends(get_user), Depends(requires_access_view(AccessView.PLUGINS))]
    for router in (cluster_routes.router, page_routes.router, static_files.router):
        app.include_router(router, dependencies=closed)
    return app
