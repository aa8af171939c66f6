"""Which connections and DAGs a user sees, by Airflow's own auth manager and tables."""

import json
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.operators.hooks.cluster import ClusterHook
from logyard.plugins.logyard_ui.access.actions import ActionDag, Actions, dags_of
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_app import Clock, Connections, PageClient, login, make_app

pytestmark = pytest.mark.airflow

TASK = {"__var": {"template_fields": ["logyard_conn_id"], "logyard_conn_id": "{{ params.logyard_conn_id }}"}}


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster({1: None})


def _listed(app: Any, role: str) -> list[str]:
    return [entry["conn_id"] for entry in PageClient(app, role).json("/api/connections")["connections"]]


def test_connections_of_other_types_are_not_touched(cluster: MemoryCluster, known: Connections) -> None:
    known.add("a_database", conn_type="postgres", host="secret-host")
    known.add("kafka_west", host="west-1", port=9092, description="the other one")
    app = make_app(cluster)
    assert _listed(app, "VIEWER") == ["kafka_west", "logyard_default"]
    first = PageClient(app).json("/api/connections")["connections"][0]
    assert (first["bootstrap"], first["problem"]) == ("west-1:9092", None)
    answers = PageClient(app).answers("/api/overview?conn_id=a_database", "/api/overview?conn_id=nothing_at_all")
    assert [answer.status_code for answer in answers] == [404, 404]
    assert "secret-host" not in answers[0].text
    assert answers[0].text.replace("a_database", "") == answers[1].text.replace("nothing_at_all", "")


def test_a_connection_that_makes_no_sense_says_so(cluster: MemoryCluster, known: Connections) -> None:
    known.add("broken", host="", password="hunter2")
    app = make_app(cluster)
    found = {entry["conn_id"]: entry for entry in PageClient(app).json("/api/connections")["connections"]}
    assert found["broken"]["bootstrap"] is None
    assert "no bootstrap servers" in found["broken"]["problem"]
    answer = PageClient(app).answer("/api/overview?conn_id=broken")
    assert (answer.status_code, "hunter2" in answer.text) == (502, False)


def test_an_administrator_narrows_what_viewers_see(
    cluster: MemoryCluster, known: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    known.add("kafka_west")
    app = make_app(cluster)
    monkeypatch.setenv("AIRFLOW__LOGYARD__PAGE_CONNECTIONS", "kafka_west, elsewhere")
    assert _listed(app, "VIEWER") == ["kafka_west"]
    assert _listed(app, "OP") == ["kafka_west", "logyard_default"]  # who may read connections sees them anyway
    assert PageClient(app, "VIEWER").answer("/api/topics").status_code == 404
    assert PageClient(app, "VIEWER").answer("/api/topics?conn_id=kafka_west").status_code == 200
    polled = {entry["conn_id"] for entry in PageClient(app, "VIEWER").json("/api/polls")["polls"]}
    PageClient(app, "OP").json("/api/topics")
    assert (
        {entry["conn_id"] for entry in PageClient(app, "VIEWER").json("/api/polls")["polls"]}
        == polled
        == {"kafka_west"}
    )
    monkeypatch.setenv("AIRFLOW__LOGYARD__PAGE_CONNECTIONS", "")
    assert _listed(app, "VIEWER") == []


def test_a_teams_connection_is_its_teams(
    cluster: MemoryCluster, known: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.models.connection import Connection

    known.add("kafka_west")
    app = make_app(cluster)
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    monkeypatch.setattr(Connection, "get_team_name", {"kafka_west": "west"}.get)
    assert _listed(app, "VIEWER") == ["logyard_default"]
    mine = PageClient(app, "OP")
    assert mine.answer("/api/topics?conn_id=kafka_west").status_code == 404
    mine.headers = login("OP", ("west",))
    assert mine.answer("/api/topics?conn_id=kafka_west").status_code == 200


def test_connections_of_the_database_are_listed(
    cluster: MemoryCluster, known: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")  # as Airflow's API server does
    app = make_app(cluster)
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    with create_session() as session:
        session.add(Connection(conn_id="stored", conn_type="logyard", host="stored-1:9092"))
        session.add(Connection(conn_id="stored_sql", conn_type="postgres", host="x"))
    try:
        assert _listed(app, "VIEWER") == ["logyard_default", "stored"]
        assert PageClient(app).answer("/api/topics?conn_id=stored").status_code == 200
    finally:
        with create_session() as session:
            session.query(Connection).delete()


def test_a_connection_is_looked_up_once_in_a_while(
    cluster: MemoryCluster, known: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logyard.plugins.logyard_ui.access.connections import KEPT_S
    from logyard.plugins.logyard_ui.access.connections import Connections as Known

    make_app(cluster)
    clock = Clock()
    asked: list[str] = []
    real = ClusterHook.get_connection

    def noted(conn_id: str) -> Any:
        asked.append(conn_id)
        return real(conn_id)

    monkeypatch.setattr(ClusterHook, "get_connection", noted)
    monkeypatch.setattr("logyard.plugins.logyard_ui.access.connections.may_see", lambda conn_id, user: True)
    found = Known(clock)
    for clock.now in (0.0, KEPT_S / 2, KEPT_S - 0.1):
        assert found.find("logyard_default", None) is not None
        assert found.find("gone", None) is None
    assert asked == ["logyard_default", "gone"]
    clock.now = KEPT_S
    found.find("logyard_default", None)
    assert len(asked) == 3


def _store_dags() -> None:
    """Put DAGs of our factories into Airflow's tables, as its DAG processor does."""
    from airflow.models.dag import DagModel, DagTag
    from airflow.models.dag_version import DagVersion
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.serialization.serialized_objects import DagSerialization, LazyDeserializedDAG
    from airflow.utils.session import create_session

    from logyard.dags.factories.compact_segments import compact_segments_dag
    from logyard.dags.factories.reassign_replicas import reassign_replicas_dag

    dags = [
        reassign_replicas_dag(),
        reassign_replicas_dag("west_", "kafka_west"),
        compact_segments_dag("west_", "kafka_west"),
    ]
    with create_session() as session:
        session.merge(DagBundleModel(name="own"))
        session.flush()
        for dag in dags:
            model = DagModel(  # type: ignore[no-untyped-call]
                dag_id=dag.dag_id, bundle_name="own", is_stale=False, is_paused=dag.dag_id.startswith("west")
            )
            model.tags = [DagTag(name="logyard", dag_id=dag.dag_id)]
            session.add(model)
            session.flush()
            version = DagVersion(dag_id=dag.dag_id, version_number=1, bundle_name="own")
            session.add(version)
            session.flush()
            stored = SerializedDagModel(LazyDeserializedDAG(data=DagSerialization.to_dict(dag)))
            stored.dag_version = version
            session.add(stored)


def test_actions_are_the_dags_of_that_connection(cluster: MemoryCluster, known: Connections) -> None:
    known.add("kafka_west")
    app = make_app(cluster)
    assert PageClient(app).json("/api/actions") == {"actions": [], "records": False}
    _store_dags()
    app = make_app(cluster)
    assert PageClient(app, "VIEWER").json("/api/actions")["actions"] == [
        {"action": "reassign_replicas", "dag_id": "logyard_reassign_replicas", "paused": False, "may_run": False}
        | {"default_conn_id": None, "other_conn_ids": []}
    ]
    west = PageClient(app, "OP").json("/api/actions?conn_id=kafka_west")["actions"]
    assert [(a["action"], a["dag_id"], a["paused"], a["may_run"]) for a in west] == [
        ("reassign_replicas", "west_reassign_replicas", True, True),
        ("compact_segments", "west_compact_segments", True, True),
    ]


def test_a_dag_that_chooses_the_cluster_names_the_others(cluster: MemoryCluster, known: Connections) -> None:
    served = [ActionDag("copy_records", "copy_records", name, False, "a") for name in ("logyard_default", "b", "a")]
    alone = ActionDag("create_topic", "create_topic", "logyard_default", False)
    app = make_app(cluster, actions=Actions(lambda: [*served, alone]))
    found = PageClient(app, "OP").json("/api/actions")["actions"]
    assert {one["action"]: one["other_conn_ids"] for one in found} == {"copy_records": ["a", "b"], "create_topic": []}


def test_the_description_of_the_routes(cluster: MemoryCluster, known: Connections) -> None:
    app = make_app(cluster)
    described = PageClient(app).json("/openapi.json")
    page = PageClient(app).answer("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "<script" not in page.text
    for path in described["paths"]:
        assert path in page.text
    assert "/api/plan" in described["paths"]
    text = json.dumps(described)
    assert "http://" not in text.replace("http://page", "")


@pytest.mark.parametrize(
    "odd",
    [
        {"dag": {"tasks": [None]}},
        {"dag": {"tasks": [{"__var": {"partial_kwargs": None}}]}},
        {"dag": {"tasks": [TASK], "params": {"logyard_conn_id": {}}}},
        {"dag": {"tasks": [TASK], "params": [["logyard_conn_id", {"__var": {"schema": {"enum": 5}}}]]}},
        {"dag": None},
    ],
)
def test_a_dag_of_another_version_of_airflow_hides_no_other(odd: dict[str, Any]) -> None:
    assert dags_of("x_create_topic", odd, paused=False) == []
    known = {"dag": {"tasks": [{"__var": {**TASK["__var"], "logyard_conn_id": "west"}}]}}
    assert dags_of("x_create_topic", known, paused=True) == [ActionDag("create_topic", "x_create_topic", "west", True)]


@pytest.mark.parametrize("extra", ["[1]", "5", "{"])
def test_an_extra_that_is_no_object_hides_no_other_connection(
    cluster: MemoryCluster, known: Connections, monkeypatch: pytest.MonkeyPatch, extra: str
) -> None:
    """Airflow raises ValueError as such a connection is read."""
    known.add("broken")
    read = ClusterHook.get_connection

    class Odd:
        conn_id, conn_type, description, host, port = "broken", "logyard", None, "h", 1

        @property
        def extra_dejson(self) -> Any:
            return json.loads(extra)

    monkeypatch.setattr(ClusterHook, "get_connection", lambda name: Odd() if name == "broken" else read(name))
    listed = PageClient(make_app(cluster)).json("/api/connections")["connections"]
    found = {entry["conn_id"]: entry["problem"] for entry in listed}
    assert found == {"broken": "connection broken: its extra is no JSON object", "logyard_default": None}
