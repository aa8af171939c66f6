"""The plugin as Airflow finds it: routes under /logyard and a view in the navigation; nothing heavy until asked."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from logyard.operators.links import ClusterPageLink, docs_address

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

PREFIX = "/logyard"


class LazyApp:
    """The routes as an ASGI application that is made at the first request.

    Every process of Airflow loads its plugins, workers included; only the API server needs FastAPI.
    """

    def __init__(self) -> None:
        self._app: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            from logyard.plugins.logyard_ui.app import make_app

            self._app = make_app()
        await self._app(scope, receive, send)


def begin_history(app: Any) -> Any:
    """Begin to keep the clusters' history. Airflow's API server calls this as it starts, and no other process does; it
    is declared as a middleware, and is none: requests do not pass through it."""
    from logyard.plugins.logyard_ui.history.process import begin

    begin()
    return app


def _view(name: str, module: str, **place: str) -> dict[str, str]:
    # Relative to the UI's base, which may lie below a path of a proxy.
    return {"name": name, "bundle_url": f"{PREFIX.lstrip('/')}/static/{module}.js", **place}


def docs_menu() -> list[dict[str, str]]:
    """Entries of Airflow's menu *Docs*: the page's routes, which the package describes itself, and the house's docs."""
    entries = {"Logyard's routes": f"{PREFIX.lstrip('/')}/docs", "Logyard": docs_address()}
    return [
        {"name": name, "href": href, "destination": "nav", "category": "docs"} for name, href in entries.items() if href
    ]


class LogyardPlugin(AirflowPlugin):
    """Logyard in Airflow's UI."""

    name = "logyard"
    # Airflow declares these as attributes of instances, so they cannot be ClassVar.
    fastapi_apps: list[Any] = [{"app": LazyApp(), "url_prefix": PREFIX, "name": "Logyard"}]  # noqa: RUF012
    fastapi_root_middlewares: list[Any] = [{"middleware": begin_history, "name": "Logyard's history"}]  # noqa: RUF012
    react_apps: list[Any] = [  # noqa: RUF012
        # Airflow imports the file and takes the global function of that name; the name is also what people read.
        _view("Logyard", "page", destination="nav", url_route="logyard", category="browse"),
        _view("Logyard health", "dashboard_tile", destination="dashboard"),
        _view("Cluster changes", "run_tab", destination="dag_run", url_route="logyard-run"),
    ]
    external_views: list[Any] = docs_menu()
    operator_extra_links: list[Any] = [ClusterPageLink()]  # noqa: RUF012
