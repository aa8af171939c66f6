"""A cluster's ACLs, users and limits, and the settings of all brokers: what is told, searched, refused, and to whom."""

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.acls import acls
from logyard.admin.configs.entities import CLIENTS, IPS, USERS, Entity
from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.users.users import NewPassword
from logyard.plugins.logyard_ui.access.actions import ActionDag, Actions
from logyard.plugins.logyard_ui.cluster import security
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_app import Connections, PageClient, make_app

pytestmark = pytest.mark.airflow

PASSWORD = "hunter2-of-alice"


@pytest.fixture
def guarded(cluster: MemoryCluster) -> MemoryCluster:
    client = MemoryClient(cluster)
    client.create_acls(
        [
            *acls.parse({"topic": "orders", "principal": "User:alice", "operation": ["Read", "DescribeConfigs"]}),
            *acls.parse({"group": "g", "pattern": "prefixed", "principal": "User:CN=bob", "operation": "Read"}),
            *acls.parse({"topic": "*", "principal": "User:*", "operation": "Write", "permission": "deny"}),
        ]
    )
    client.alter_users([NewPassword("alice", "SCRAM-SHA-512", PASSWORD, 8192)], {})
    client.alter_quotas(Entity((USERS,), ("carol",)), {"producer_byte_rate": 10.0})
    client.alter_quotas(Entity((USERS,), ("",)), {"consumer_byte_rate": 20.0})
    client.alter_quotas(Entity((USERS, CLIENTS), ("carol", "app")), {"request_percentage": 50.0})
    client.alter_quotas(Entity((IPS,), ("10.0.0.7",)), {"connection_creation_rate": 3.0})
    return cluster


def test_acls_are_told_denials_first_and_searched(guarded: MemoryCluster, viewer: PageClient) -> None:
    found = viewer.json("/api/acls")
    assert (found["refused"], found["total"], found["found"]) == (None, 4, 4)
    assert found["acls"][0] == {
        "permission": "DENY",
        "principal": "User:*",
        "operation": "WRITE",
        "type": "TOPIC",
        "pattern": "LITERAL",
        "name": "*",
        "host": "*",
    }
    searched = {q: viewer.json(f"/api/acls?q={q}") for q in ("ALICE", "alice describeconfigs", "prefixed", "nobody")}
    assert [one["found"] for one in searched.values()] == [2, 1, 1, 0]
    assert all(one["total"] == 4 for one in searched.values())
    assert viewer.answer("/api/acls?q=" + "x" * 251).status_code == 422


def test_a_limit_of_infinity_is_none(guarded: MemoryCluster, viewer: PageClient) -> None:
    limits = {"producer_byte_rate": float("inf"), "consumer_byte_rate": 7.0}
    MemoryClient(guarded).alter_quotas(Entity((USERS,), ("dave",)), limits)
    found = {row["user"]: row["limits"] for row in viewer.json("/api/quotas")["quotas"]}
    assert found["dave"] == {"consumer_byte_rate": 7.0}
    users = {row["user"]: row["limits"] for row in viewer.json("/api/users")["users"]}
    assert users["dave"] == {"consumer_byte_rate": 7.0}


def test_a_long_list_is_cut_and_its_end_is_found_by_search(
    guarded: MemoryCluster, viewer: PageClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security, "SHOWN_MAX", 2)
    found = viewer.json("/api/acls")
    assert (found["total"], found["found"], len(found["acls"])) == (4, 4, 2)
    assert [row["type"] for row in viewer.json("/api/acls?q=bob")["acls"]] == ["GROUP"]


def test_users_are_those_of_scram_and_those_that_are_named(guarded: MemoryCluster, viewer: PageClient) -> None:
    answer = viewer.answer("/api/users")
    found = viewer.json("/api/users")
    assert found["users"] == [
        {"user": "CN=bob", "mechanisms": {}, "acls": 1, "limits": {}},
        {"user": "alice", "mechanisms": {"SCRAM-SHA-512": 8192}, "acls": 2, "limits": {}},
        {"user": "carol", "mechanisms": {}, "acls": 0, "limits": {"producer_byte_rate": 10.0}},
    ]
    assert PASSWORD not in answer.text
    assert [row["user"] for row in viewer.json("/api/users?q=sha-512")["users"]] == ["alice"]


def test_limits_name_what_they_are_of(guarded: MemoryCluster, viewer: PageClient) -> None:
    found = viewer.json("/api/quotas")
    assert [(row["user"], row["client"], row["ip"]) for row in found["quotas"]] == [
        ("", None, None),
        ("carol", None, None),
        ("carol", "app", None),
        (None, None, "10.0.0.7"),
    ]
    assert found["quotas"][2]["limits"] == {"request_percentage": 50.0}
    assert [row["ip"] for row in viewer.json("/api/quotas?q=connection 10.0")["quotas"]] == ["10.0.0.7"]


def test_without_an_authorizer_one_sentence_says_so(cluster: MemoryCluster, viewer: PageClient) -> None:
    cluster.authorizer = False
    found = viewer.json("/api/acls")
    assert (found["refused"], found["acls"]) == (security.NO_AUTHORIZER, [])
    users = viewer.json("/api/users")  # these need no authorizer
    assert (users["refused"], users["users"]) == (None, [])


@pytest.mark.parametrize(
    ("route", "method", "right"),
    [
        ("acls", "acls", "Describe"),
        ("users", "scram_users", "Describe"),
        ("quotas", "quotas", "DescribeConfigs"),
        ("broker_defaults", "broker_defaults", "DescribeConfigs"),
    ],
)
@pytest.mark.parametrize("code", ["CLUSTER_AUTHORIZATION_FAILED", "UNSUPPORTED_VERSION", "INVALID_REQUEST"])
def test_what_the_connections_user_may_not_see_is_one_sentence(
    cluster: MemoryCluster,
    known: Connections,
    monkeypatch: pytest.MonkeyPatch,
    route: str,
    method: str,
    right: str,
    code: str,
) -> None:
    def refuse(*_: object) -> None:
        raise ApiError(ErrorCode[code], "what the broker says")

    monkeypatch.setattr(MemoryClient, method, refuse)
    answer = PageClient(make_app(cluster)).answer(f"/api/{route}")
    if code == "INVALID_REQUEST":
        assert (answer.status_code, answer.json()["detail"]) == (502, "what the broker says")
        return
    said = answer.json()["refused"]
    assert said.endswith(f"needs {right} on the cluster." if code.startswith("CLUSTER") else ".")
    assert (said.count("."), "what the broker says" in said) == (1, False)


def test_who_may_see_it_is_who_may_see_the_page(guarded: MemoryCluster, known: Connections) -> None:
    app = make_app(guarded)
    for route in ("acls", "users", "quotas", "broker_defaults"):
        assert PageClient(app, None).answer(f"/api/{route}").status_code == 401
        assert PageClient(app, "VIEWER").answer(f"/api/{route}").status_code == 200
        assert PageClient(app, "VIEWER").answer(f"/api/{route}?conn_id=another").status_code == 404


def test_settings_of_all_brokers_are_told(cluster: MemoryCluster, viewer: PageClient) -> None:
    assert viewer.json("/api/broker_defaults")["configs"] == []
    other = MemoryCluster({1: None})
    other.broker_defaults["log.retention.ms"] = "60000"
    found = PageClient(make_app(other)).json("/api/broker_defaults")
    assert (found["refused"], found["configs"]) == (
        None,
        [
            {
                "name": "log.retention.ms",
                "value": "60000",
                "source": "DYNAMIC_DEFAULT_BROKER_CONFIG",
                "override": True,
                "sensitive": False,
                "read_only": False,
            }
        ],
    )


def test_brokers_are_asked_before_their_settings_change(cluster: MemoryCluster, known: Connections) -> None:
    actions = Actions(lambda: [ActionDag("alter_broker_settings", "d", "logyard_default", False)])
    app = make_app(cluster, actions=actions)
    op = PageClient(app, "OP")

    def refused(query: str) -> dict[str, str] | None:
        found: dict[str, str] | None = op.json(f"/api/broker_check?{query}")["refused"]
        return found

    assert refused("broker=1&set=num.io.threads=4&unset=log.cleaner.threads") is None
    assert refused("set=num.io.threads=4") is None
    said = refused("broker=1&set=broker.id=4")
    assert said is not None
    assert (said["part"], "dynamically" in said["text"]) == ("configs", True)
    secret = refused("broker=1&set=ssl.key.password=hunter2")
    assert secret == {"part": "configs", "text": "ssl.key.password: a secret, which no DAG run may hold."}
    assert (cluster.broker_config, cluster.broker_defaults) == ({}, {})
    assert PageClient(app, "VIEWER").answer("/api/broker_check?broker=1").status_code == 403
    assert op.answer("/api/broker_check?broker=-1").status_code == 422
