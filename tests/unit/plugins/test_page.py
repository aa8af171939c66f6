"""The page: one look for many viewers, every route closed, nothing set as HTML, one registration."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("airflow.sdk")

from fastapi import HTTPException
from fastapi.routing import APIRoute

from logyard.admin.memory import MemoryClient, MemoryConnector
from logyard.admin.memory_cluster import MemoryCluster
from logyard.admin.ports import ClusterUnreachable
from logyard.admin.settings import ClusterSettings
from logyard.admin.snapshot import NewTopic
from logyard.plugins.logyard_ui.looks import FRESH_S, IDLE_S, Looks

pytestmark = pytest.mark.airflow

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = ClusterSettings.read("memory:1")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster({1: None, 2: None, 3: None})
    MemoryClient(made).create_topic(NewTopic("t", 6, 3))
    made.tick()
    return made


def test_many_viewers_cost_one_look(cluster: MemoryCluster) -> None:
    clock = Clock()
    looks = Looks(MemoryConnector(cluster), clock)
    first = looks.cluster("c", SETTINGS)
    assert [looks.cluster("c", SETTINGS) for _ in range(50)] == [first] * 50
    assert cluster.looks == 1
    clock.now = FRESH_S
    looks.cluster("c", SETTINGS)
    assert cluster.looks == 2
    json.dumps(first)
    assert first["controller"] == 1
    assert sum(broker["leaders"] for broker in first["brokers"]) == 6
    assert first["topics"][0]["partitions"][0]["isr"] == first["topics"][0]["partitions"][0]["replicas"]


def test_a_cluster_that_is_down_is_not_hammered_and_comes_back(cluster: MemoryCluster) -> None:
    clock = Clock()
    looks = Looks(MemoryConnector(cluster), clock)
    running, cluster.running = cluster.running, set()
    for _ in range(5):
        with pytest.raises(ClusterUnreachable):
            looks.cluster("c", SETTINGS)
    assert cluster.looks == 1
    cluster.running = running
    clock.now = FRESH_S
    assert looks.cluster("c", SETTINGS)["controller"] == 1


def test_clients_nobody_uses_are_closed(cluster: MemoryCluster) -> None:
    clock = Clock()
    made: list[MemoryClient] = []

    class Counting(MemoryConnector):
        def cluster(self, settings: ClusterSettings) -> MemoryClient:
            made.append(MemoryClient(self.cluster_state))
            return made[-1]

    looks = Looks(Counting(cluster), clock)
    looks.cluster("idle", SETTINGS)
    clock.now = IDLE_S + 1
    looks.cluster("other", SETTINGS)
    assert [client.closed for client in made] == [True, False]
    looks.cluster("other", ClusterSettings.read("memory:2"))
    assert [client.closed for client in made] == [True, True, False]


def test_every_route_is_get_and_wants_a_user(cluster: MemoryCluster) -> None:
    from airflow.api_fastapi.core_api.security import get_user

    from logyard.plugins.logyard_ui.routes import make_router

    routes = make_router(Looks(MemoryConnector(cluster))).routes
    assert {route.path for route in routes if isinstance(route, APIRoute)} == {"/api/cluster", "/view.js"}
    for route in routes:
        assert isinstance(route, APIRoute)
        assert route.methods == {"GET"}
        assert get_user in [dependency.call for dependency in route.dependant.dependencies]
        assert len(route.dependant.dependencies) >= 2


def test_other_kinds_of_connection_are_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    from logyard.plugins.logyard_ui.routes import _connection

    monkeypatch.setenv("AIRFLOW_CONN_A_DATABASE", json.dumps({"conn_type": "postgres", "host": "secret-host"}))
    for name in ("a_database", "nothing_at_all"):
        with pytest.raises(HTTPException) as refusal:
            _connection(name)
        assert refusal.value.status_code == 404
        assert "secret-host" not in str(refusal.value.detail)


def test_the_view_sets_no_html() -> None:
    source = (ROOT / "plugins/logyard_ui/static/view.js").read_text()
    for dangerous in (
        "innerHTML",
        "outerHTML",
        "dangerouslySetInnerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
    ):
        assert dangerous not in source
    assert "globalThis.Logyard = Logyard" in source


def test_loading_the_plugin_loads_no_web_framework() -> None:
    script = (
        "import sys, airflow.plugins_manager, airflow.sdk; before = set(sys.modules)\n"
        "import logyard.plugins.logyard_ui.plugin as p\n"
        "heavy = ('fastapi', 'airflow.api_fastapi', 'kafka', 'kazoo')\n"
        "print([m for m in set(sys.modules) - before if m.startswith(heavy)])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_the_shim_defines_nothing_beside_the_entry_point() -> None:
    shim = ROOT / "plugins/logyard_plugin.py"
    scope: dict[str, object] = {}
    exec(compile(ast.parse(shim.read_text()), str(shim), "exec"), scope)
    assert "LogyardPlugin" not in scope
    assert "logyard_ui/" in (ROOT / "plugins/.airflowignore").read_text()
