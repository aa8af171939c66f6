"""ACLs, users and quotas from Airflow: what is there is left alone, and no password leaves its connection."""

import dataclasses
import json
import logging
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")


from logyard.admin.acls.acls import Acl, Resource, as_json
from logyard.admin.errors import ApiError, ErrorCode
from logyard.login.security import SECRETS, Security
from logyard.operators.access import (
    CreateAclsOperator,
    DeleteAclsOperator,
    DeleteUserOperator,
    SetQuotasOperator,
    SetUserOperator,
)
from logyard.operators.airflow_names import AirflowFailException
from logyard.operators.hooks import cluster as cluster_hook
from logyard.operators.hooks.cluster import ClusterHook
from logyard.operators.provider_info import get_provider_info
from tests.support.airflow_tasks import context, run, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster

pytestmark = pytest.mark.airflow

PASSWORD = "hunter2-of-alice"
ALICE = {"topic": "flights", "principal": "User:alice", "operation": ["Read", "DescribeConfigs"]}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    made = MemoryCluster({1: None})
    use(monkeypatch, made)
    monkeypatch.setenv("AIRFLOW_CONN_ALICE", json.dumps({"conn_type": "generic", "password": PASSWORD}))
    return made


def done(operator: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The result and the outcome."""
    told = context()
    found, _ = run(operator, told)
    return found, told["ti"].values


def test_acls_are_added_once(cluster: MemoryCluster) -> None:
    group = {"group": "g", "pattern": "prefixed", "principal": "User:alice", "operation": "Read"}
    wanted = json.dumps([ALICE, group])
    planned, _ = done(CreateAclsOperator(task_id="a", acls=wanted, dry_run=True))
    assert (len(planned["created"]), len(cluster.acls)) == (3, 0)
    found, told = done(CreateAclsOperator(task_id="a", acls=wanted))
    assert (len(found["created"]), found["existing"], len(cluster.acls)) == (3, 0, 3)
    assert told["outcome"]["sentence"] == "3 ACLs added, 0 there already"
    assert ["ALLOW", "User:alice", "READ", "group g*", "*"] in told["outcome"]["rows"]
    again, _ = done(CreateAclsOperator(task_id="a", acls=wanted))
    assert (again["created"], again["existing"], len(cluster.acls)) == ([], 3, 3)
    # What one task returns, another can remove.
    gone, _ = done(DeleteAclsOperator(task_id="d", acls=found["created"], dry_run=True))
    assert (len(gone["deleted"]), len(cluster.acls)) == (3, 3)
    gone, told = done(DeleteAclsOperator(task_id="d", acls=found["created"][:2]))
    assert (len(gone["deleted"]), len(cluster.acls)) == (2, 1)
    assert told["outcome"]["sentence"] == "2 ACLs removed"
    assert done(DeleteAclsOperator(task_id="d", acls=found["created"][:2]))[0]["deleted"] == []


def test_an_acl_that_no_tool_adds_can_be_removed(cluster: MemoryCluster) -> None:
    """Brokers take any operation on any resource; what is there, and on the page, has to go when somebody says so."""
    odd = Acl(Resource("TOPIC", "flights"), "User:alice", "IDEMPOTENT_WRITE")
    cluster.acls.add(odd)
    with pytest.raises(AirflowFailException, match="only supports operations"):
        done(CreateAclsOperator(task_id="a", acls=[as_json(odd)]))
    gone, _ = done(DeleteAclsOperator(task_id="d", acls=[as_json(odd)]))
    assert (gone["deleted"], cluster.acls) == ([as_json(odd)], set())
    with pytest.raises(AirflowFailException, match="permission"):
        done(DeleteAclsOperator(task_id="d", acls=[{**as_json(odd), "permission": "perhaps"}]))


@pytest.mark.parametrize(
    ("acl", "said"),
    [
        ({"topic": "t", "principal": "alice", "operation": "Read"}, "principalType:principalName"),
        ({"topic": "t", "group": "g", "principal": "User:a", "operation": "Read"}, "one of topic"),
        ({"topic": "t", "principal": "User:a"}, "principal and operation are expected"),
        ({"topic": "t", "principal": "User:a", "operation": "Read", "hosts": "*"}, "'hosts' is not one of"),
        ({"group": "g", "principal": "User:a", "operation": "Write"}, "GROUP only supports"),
        ({"topic": "t", "pattern": "match", "principal": "User:a", "operation": "Read"}, "MATCH"),
    ],
)
def test_a_wrong_acl_fails_for_good(cluster: MemoryCluster, acl: dict[str, Any], said: str) -> None:
    with pytest.raises(AirflowFailException, match=said):
        run(CreateAclsOperator(task_id="a", acls=[acl]), context())
    assert cluster.acls == set()


def test_without_an_authorizer_it_fails_for_good(cluster: MemoryCluster) -> None:
    cluster.authorizer = False
    with pytest.raises(AirflowFailException, match="No Authorizer"):
        run(CreateAclsOperator(task_id="a", acls=[ALICE]), context())


def test_a_user_gets_a_connections_password(cluster: MemoryCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    fields: dict[str, Any] = {"user": "alice", "password_conn_id": "alice"}
    planned, _ = done(SetUserOperator(task_id="u", **fields, dry_run=True))
    assert (planned["set"], cluster.users) == (["SCRAM-SHA-512"], {})
    operator = SetUserOperator(task_id="u", **fields, mechanisms="SCRAM-SHA-256,SCRAM-SHA-512")
    found, told = done(operator)
    assert found == {
        "user": "alice",
        "existed": False,
        "set": ["SCRAM-SHA-256", "SCRAM-SHA-512"],
        "dry_run": False,
    }
    assert {one.password for one in cluster.users.values()} == {PASSWORD}
    assert told["outcome"]["sentence"] == "User alice got a password for SCRAM-SHA-256, SCRAM-SHA-512"
    assert done(SetUserOperator(task_id="u", **fields))[0]["set"] == []
    changed, more = done(SetUserOperator(task_id="u", **fields, change="true"))
    assert changed["set"] == ["SCRAM-SHA-512"]
    left = [caplog.text, json.dumps([found, told, changed, more]), repr(vars(operator)), repr(cluster.users)]
    assert not [text for text in left if PASSWORD in text]
    assert "password" not in operator.template_fields

    gone, _ = done(DeleteUserOperator(task_id="d", user="alice"))
    assert (gone["deleted"], cluster.users) == (["SCRAM-SHA-256", "SCRAM-SHA-512"], {})
    assert done(DeleteUserOperator(task_id="d", user="alice"))[0]["deleted"] == []


def test_a_connection_without_password_fails_for_good(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_BOB", json.dumps({"conn_type": "generic"}))
    with pytest.raises(AirflowFailException, match="'bob' has no password"):
        run(SetUserOperator(task_id="u", user="bob", password_conn_id="bob"), context())


def test_quotas_are_made_as_wanted(cluster: MemoryCluster) -> None:
    alice = {"user": "alice", "producer_byte_rate": 1000, "request_percentage": "5"}
    wanted = [alice, {"ip": "", "connection_creation_rate": 9}]
    planned, _ = done(SetQuotasOperator(task_id="q", quotas=wanted, dry_run=True))
    assert (len(planned["set"]), cluster.quotas) == (3, {})
    found, told = done(SetQuotasOperator(task_id="q", quotas=wanted))
    assert [one["of"] for one in found["set"]] == ["user alice", "user alice", "the default ip"]
    assert told["outcome"]["sentence"] == "3 limits changed"
    assert done(SetQuotasOperator(task_id="q", quotas=wanted))[0]["set"] == []
    less = {"user": "alice", "producer_byte_rate": 2000}
    changed, _ = done(SetQuotasOperator(task_id="q", quotas=[less], remove_others=True))
    assert (len(changed["set"]), len(changed["removed"])) == (1, 1)
    assert cluster.quotas[("users",), ("alice",)] == {"producer_byte_rate": 2000.0}
    with pytest.raises(AirflowFailException, match="above 0"):
        run(SetQuotasOperator(task_id="q", quotas=[{"user": "a", "producer_byte_rate": -1}]), context())


def test_a_connection_says_which_right_it_lacks(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(client: MemoryClient) -> dict[Any, Any]:
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")

    seen = MemoryClient.snapshot
    monkeypatch.setattr(MemoryClient, "list_reassignments", refused)
    monkeypatch.setattr(MemoryClient, "snapshot", lambda c, t=None, **_: seen(c, t))
    good, said = ClusterHook().test_connection()
    assert (good, "lacks Describe on the cluster" in said) == (False, True)


def test_the_forms_secrets_are_shown_as_dots() -> None:
    fields = get_provider_info()["connection-types"][0]["conn-fields"]
    hidden = {name for name, one in fields.items() if one["schema"].get("format") == "password"}
    of_others = {"http_tokens", "schema_registry_password"}
    assert hidden == {*SECRETS, *of_others} - {"password"}  # the password has its own field in every connection
    assert {name for name in fields if name in {one.name for one in dataclasses.fields(Security)}} >= hidden - of_others
    assert all(one["description"] for one in fields.values())


def test_secrets_without_a_telling_name_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    jaas = 'org.example.PlainLoginModule required username="alice" password="hunter2-in-jaas";'
    extra = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas,
        "ssl_key": "KEY-as-text",
        "http_tokens": {"1": "token-of-one"},
    }
    connection = {"conn_type": "logyard", "host": "a:1", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps(connection))
    masked: list[str] = []
    monkeypatch.setattr(cluster_hook, "mask_secret", masked.append)
    settings = ClusterHook().settings
    assert set(masked) == {"hunter2-in-jaas", "KEY-as-text", "token-of-one"}
    assert not [secret for secret in masked if secret in repr(settings)]
