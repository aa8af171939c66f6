"""All routes: closed without a login, read only, one read for all users, ETags, compression, hostile names."""

import gzip
import json
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from fastapi.routing import APIRoute

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.settings import ClusterSettings
from logyard.broker.model import TopicPartition
from logyard.plugins.logyard_ui.access.connections import KEPT_S
from tests.support.memory_clients import MemoryClient, MemoryConnector
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_app import Clock, Connections, PageClient, make_app

pytestmark = pytest.mark.airflow


OTHER_VERSION = "0" * 16  # of the page's modules: what is asked by it is answered, and kept by no browser


def _paths(app: Any) -> list[str]:
    filled = {
        "/api/topic": "?name=t",
        "/api/group": "?name=readers",
        "/api/broker": "?id=1",
        "/api/records": "?topic=t",
        "/api/compare": "?kind=topics&name=t",
        "/api/topic_check": "?action=create_topic&topic=new",
    }
    return [
        route.path.replace("{name}", "uplot" if "vendor" in route.path else "page").replace("{version}", OTHER_VERSION)
        + filled.get(route.path, "")
        for route in app.routes
        if isinstance(route, APIRoute)
    ]


def test_every_route_is_closed_and_only_reads(cluster: MemoryCluster, known: Connections) -> None:
    app = make_app(cluster)
    assert all(isinstance(route, APIRoute) and route.methods == {"GET"} for route in app.routes)
    paths = _paths(app)
    assert len(paths) >= 17
    for stranger in (PageClient(app, None), PageClient(app, None)):
        assert {found.status_code for found in stranger.answers(*paths)} == {401}
    assert cluster.looks == 0
    forged = PageClient(app, None).answers(*paths, Authorization="Bearer nobody")
    assert {found.status_code for found in forged} == {403}
    # A viewer may read everything but these: one needs the right to a connection, two the right to run a DAG.
    beyond = {path for path in paths if path.startswith(("/api/records?", "/api/topic_check?", "/api/broker_check"))}
    assert len(beyond) == 3
    for path, found in zip(paths, PageClient(app).answers(*paths), strict=True):
        assert found.status_code == (403 if path in beyond else 200), path
        if path in beyond:
            continue
        assert "no-cache" in found.headers["cache-control"]
        assert found.headers["x-content-type-options"] == "nosniff"


def test_a_user_without_a_role_sees_nothing(cluster: MemoryCluster, known: Connections) -> None:
    app = make_app(cluster)
    assert {found.status_code for found in PageClient(app, "").answers(*_paths(app))} <= {401, 403}
    assert cluster.looks == 0


def test_fifty_viewers_are_one_read(cluster: MemoryCluster, known: Connections) -> None:
    clock = Clock()
    viewer = PageClient(make_app(cluster, clock))
    found = viewer.answers(*["/api/overview"] * 50)
    assert {answer.text for answer in found} == {found[0].text}
    assert cluster.looks == 1
    costs = {cost["part"]: cost for cost in viewer.json("/api/polls")["polls"]}
    assert (costs["snapshot"]["asked"], costs["snapshot"]["looks"]) == (50, 1)
    clock.now = 2.5
    viewer.answers(*["/api/topics"] * 50)
    assert cluster.looks == 2


def test_an_unchanged_list_is_not_sent(cluster: MemoryCluster, known: Connections) -> None:
    clock = Clock()
    viewer = PageClient(make_app(cluster, clock))
    first = viewer.answer("/api/topics")
    rows = [dict(zip(first.json()["columns"], row, strict=True)) for row in first.json()["rows"]]
    assert [row["name"] for row in rows] == ["t", "u"]
    assert rows[0] == {
        "name": "t", "partitions": 6, "replication_factor": 3,
        "under_replicated": 0, "offline": 0, "not_preferred": 0, "internal": 0,
    }  # fmt: skip
    clock.now = 10.0
    again = viewer.answer("/api/topics", **{"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert viewer.json("/api/overview")["versions"]["topics"] == first.json()["version"]
    MemoryClient(cluster).create_topic(NewTopic("v", 1, 1))
    clock.now = 20.0
    changed = viewer.answer("/api/topics", **{"If-None-Match": first.headers["etag"]})
    assert changed.status_code == 200
    assert changed.json()["version"] != first.json()["version"]


def test_long_answers_are_compressed(cluster: MemoryCluster, known: Connections) -> None:
    for number in range(100):
        MemoryClient(cluster).create_topic(NewTopic(f"topic-{number}", 1, 1))
    viewer = PageClient(make_app(cluster))
    packed, plain = viewer.answers("/api/topics"), viewer.answers("/api/topics", **{"Accept-Encoding": "identity"})
    assert packed[0].headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain[0].headers
    assert packed[0].json() == plain[0].json()
    assert len(gzip.compress(plain[0].content)) < len(plain[0].content) / 3


def test_hostile_names_stay_text(cluster: MemoryCluster, known: Connections) -> None:
    hostile = '</script><img src=x onerror="alert(1)">'
    cluster.group_commits[hostile] = {TopicPartition("t", 0): 1}
    cluster.group_members[hostile] = 1
    cluster.configs["t"]["a"] = hostile
    viewer = PageClient(make_app(cluster))
    for path in (
        "/api/groups",
        "/api/topic?name=t",
        "/api/group?name=%3C%2Fscript%3E%3Cimg+src%3Dx+onerror%3D%22alert%281%29%22%3E",
    ):
        answer = viewer.answer(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert "<" not in answer.text
        assert hostile in json.dumps(answer.json(), ensure_ascii=False).replace('\\"', '"')


def test_other_settings_are_another_cluster(cluster: MemoryCluster, known: Connections) -> None:
    opened: list[ClusterSettings] = []

    class Noting(MemoryConnector):
        def cluster(self, settings: ClusterSettings) -> MemoryClient:
            opened.append(settings)
            return MemoryClient(self.cluster_state)

    clock = Clock()
    app = make_app(cluster, clock, Noting(cluster))
    PageClient(app).json("/api/topics")
    clock.now += KEPT_S  # connections are looked up again
    known.add("logyard_default", host="memory:2")
    PageClient(app).json("/api/topics")
    assert [settings.bootstrap for settings in opened] == [("memory:1",), ("memory:2",)]
