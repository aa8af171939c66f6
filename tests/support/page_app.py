"""The page's application in this process: Airflow's own login in front of it, a cluster in memory behind it.

    with connections() as known:                       # logyard_default, in the environment
        app = make_app(MemoryCluster({1: "rack"}))
        viewer = PageClient(app)                       # logged in, with the role VIEWER
        assert viewer.json("/api/overview")["health"] == "ok"

With a `Clock` time stands still until the test sets `clock.now`.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpx

from logyard.admin.connector import Connector
from tests.support import airflow_home
from tests.support.memory_clients import MemoryConnector
from tests.support.memory_cluster import MemoryCluster

airflow_home.prepare()

CONNECTION = "logyard_default"


class Clock:
    """Seconds that pass when a test sets `now`."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def ms(self) -> int:
        return round(self.now * 1000)


class Connections:
    """Airflow's connections in the environment; removed at the end."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def add(self, conn_id: str, **fields: Any) -> None:
        name = f"AIRFLOW_CONN_{conn_id.upper()}"
        os.environ[name] = json.dumps({"conn_type": "logyard", "host": "memory:1"} | fields)
        self._names.append(name)

    def clear(self) -> None:
        for name in self._names:
            os.environ.pop(name, None)


@contextmanager
def connections(**fields: Any) -> Iterator[Connections]:
    """With `logyard_default`, whose `fields` may name a real cluster."""
    made = Connections()
    made.add(CONNECTION, **fields)
    try:
        yield made
    finally:
        made.clear()


@cache
def _signer() -> Any:
    """Airflow's simple auth manager on its own database; made once for each process, since it is slow."""
    os.environ.setdefault("AIRFLOW__API_AUTH__JWT_SECRET", "a secret of these tests, long enough to sign with" * 2)
    from airflow import settings
    from airflow.api_fastapi.app import create_auth_manager
    from airflow.models import import_all_models
    from airflow.models.base import Base

    import_all_models()  # type: ignore[no-untyped-call]
    Base.metadata.create_all(settings.engine)
    return create_auth_manager()


def login(role: str, teams: tuple[str, ...] = ()) -> dict[str, str]:
    """The headers of a logged-in user of that role."""
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    user = SimpleAuthManagerUser(username=role.lower(), role=role, teams=list(teams))
    return {"Authorization": f"Bearer {_signer().generate_jwt(user)}"}


def make_app(
    cluster: MemoryCluster | None = None,
    clock: Clock | None = None,
    connector: Connector | None = None,
    actions: Any = None,
    history: Any = None,
    idle_s: float = 5.0,
) -> Any:
    """The application on a cluster in memory, or on that connector's; with a clock, time stands still.

    `actions`: the DAGs that can be started; without it those of Airflow's database. `history`: another store than that.
    `idle_s`: after so long without a request what was read is dropped.
    """
    from logyard.plugins.logyard_ui.access.connections import Connections as AirflowConnections
    from logyard.plugins.logyard_ui.app import make_app as real
    from logyard.plugins.logyard_ui.cache.cache import Clocks
    from logyard.plugins.logyard_ui.cluster.clusters import CachedClusters
    from logyard.plugins.logyard_ui.dependencies import Services

    _signer()
    clocks = Clocks(clock, clock.ms) if clock is not None else None
    found = AirflowConnections(clock) if clock is not None else AirflowConnections()
    connector = connector or MemoryConnector(cluster or MemoryCluster({1: None}))
    clusters = CachedClusters(connector, clocks, idle_s=idle_s)
    parts = {"actions": actions, "history": history}
    return real(Services(clusters, found, **{name: part for name, part in parts.items() if part is not None}))


class PageClient:
    """A user of the application: requests, several at once where wanted, with one login."""

    def __init__(self, app: Any, role: str | None = "VIEWER") -> None:
        self.app, self.headers = app, login(role) if role is not None else {}

    def answers(self, *paths: str, **headers: str) -> list[httpx.Response]:
        async def ask() -> list[httpx.Response]:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://page") as client:
                return list(await asyncio.gather(*(client.get(p, headers=self.headers | headers) for p in paths)))

        return asyncio.run(ask())

    def answer(self, path: str, **headers: str) -> httpx.Response:
        return self.answers(path, **headers)[0]

    def json(self, path: str) -> dict[str, Any]:
        """The answer once nothing of it is pending; repeats the request as a view does, as the machine may be busy."""
        for _ in range(20):
            found = self.answer(path)
            assert found.status_code == 200, found.text
            content: dict[str, Any] = found.json()
            if not content.get("pending"):
                break
        return content
