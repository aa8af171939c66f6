"""Airflow's own UI with the page in it, over a cluster in memory: all that a browser needs, without an Airflow.

The UI's files are those of the installed Airflow, and the page's routes are the real ones behind a real login; what
the UI's frame asks of Airflow itself is answered with as little as it can draw.
"""

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from logyard.admin.connector import RealConnector
from logyard.broker.model import Assignment, TopicPartition
from logyard.local.ports import HOST
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_app import connections, login, make_app

_CONFIG = {
    "fallback_page_limit": 25,
    "auto_refresh_interval": 3,
    "hide_paused_dags_by_default": False,
    "instance_name": "Airflow",
    "enable_swagger_ui": False,
    "require_confirmation_dag_change": False,
    "default_wrap": False,
    "test_connection": "Disabled",
    "dashboard_alert": [],
    "show_external_log_redirect": False,
    "external_log_name": None,
    "theme": None,
    "multi_team": False,
    "rerun_with_latest_version": None,
}
_LISTS = ("macros", "flask_blueprints", "fastapi_apps", "fastapi_root_middlewares", "external_views", "listeners")
_MORE_LISTS = ("appbuilder_views", "appbuilder_menu_items", "global_operator_extra_links", "operator_extra_links")


def large_cluster(topics: int, partitions: int, brokers: int) -> MemoryCluster:
    """So many topics, placed in turn; every fiftieth is spread unevenly."""
    made = MemoryCluster({broker: "abc"[broker % 3] for broker in range(1, brokers + 1)})
    for number in range(topics):
        name = f"orders.{number % 97}.{number:05d}"
        made.configs[name] = {}
        for partition in range(partitions):
            first = 0 if number % 50 == 1 else number + partition
            replicas = tuple((first + place) % brokers + 1 for place in range(3))
            tp = TopicPartition(name, partition)
            made.assignments[tp] = Assignment(replicas)
            made.sizes[tp] = (number * 7919) % 10_000_019
    for _ in range(3):
        made.tick()
    return made


@contextmanager
def hosted(
    cluster: MemoryCluster | None,
    *,
    bootstrap: str = "",
    acts: bool | str = False,
    role: str = "OP",
    airflow: Mapping[str, Any] | None = None,
    history: Any = None,
    idle_s: float = 5.0,
    **extra: Any,
) -> Iterator[str]:
    """Serve it on a free port of loopback, from a thread; yields the address.

    `bootstrap`: a real cluster instead of one in memory. With `acts` the user may start every action's DAG; no DAG
    runs, so tests go as far as the review; a text: these DAGs choose the cluster, and it is the one that they have
    without a choice. `airflow`: paths of Airflow's API with their answers. `history`: the store of the plots.
    `idle_s`: after so long without a request what was read is dropped. `extra`: more of the connection.
    """
    import uvicorn

    fields: dict[str, Any] = {"host": bootstrap} if bootstrap else {}
    with socket.socket() as listening, connections(**fields, extra=extra):
        listening.bind((HOST, 0))
        connector = RealConnector() if bootstrap else None
        app = make_app(
            cluster, connector=connector, actions=_every_action(acts) if acts else None, history=history, idle_s=idle_s
        )
        server = uvicorn.Server(
            uvicorn.Config(_around(_logged_in(app, role), airflow or {}), log_level="error", lifespan="off")
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield f"http://{HOST}:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(10)


def _around(page: Any, airflow_answers: Mapping[str, Any]) -> Any:
    """Airflow's UI around the page."""
    import airflow
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, JSONResponse, Response
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles

    from logyard.plugins.logyard_ui.plugin import LogyardPlugin

    dist = Path(airflow.__file__).parent / "ui" / "dist"
    plugin = {"name": "logyard", "source": "", "timetables": [], "react_apps": LogyardPlugin.react_apps}
    plugin |= {name: [] for name in (*_LISTS, *_MORE_LISTS)}
    answers: dict[str, Any] = {
        "/ui/config": _CONFIG,
        "/ui/auth/menus": {"authorized_menu_items": [], "extra_menu_items": []},
        "/ui/auth/me": {"id": "op", "username": "op"},
        "/api/v2/monitor/health": {
            part: {"status": "healthy"} for part in ("metadatabase", "scheduler", "triggerer", "dag_processor")
        },
        "/api/v2/plugins": {"plugins": [plugin], "total_entries": 1},
    }

    def rest(request: Request) -> Response:
        path = request.url.path
        if path.startswith(("/ui/", "/api/")):
            if path in airflow_answers:
                return JSONResponse(airflow_answers[path])
            return JSONResponse(answers.get(path, {"total_entries": 0, "hitl_details": [], "dag_runs": []}))
        return HTMLResponse((dist / "index.html").read_text().replace("{{ backend_server_base_url }}", "/"))

    return Starlette(
        routes=[
            Mount("/logyard", page),
            Mount("/static", StaticFiles(directory=dist)),
            Route("/{path:path}", rest, methods=["GET", "POST"]),
        ]
    )


def _every_action(acts: bool | str) -> Any:
    from logyard.plugins.logyard_ui.access.actions import ACTIONS, ActionDag, Actions

    default = acts if isinstance(acts, str) else None
    return Actions(lambda: [ActionDag(name, f"logyard_{name}", "logyard_default", False, default) for name in ACTIONS])


def _logged_in(app: Any, role: str) -> Any:
    """The application for whoever asks, as a user of that role."""
    headers = [(name.lower().encode(), value.encode()) for name, value in login(role).items()]

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "headers": [*scope["headers"], *headers]}, receive, send)

    return serve
