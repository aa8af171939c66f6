"""The DAGs that change ACLs, users, limits and brokers' settings, their forms rendered, their tasks run in memory."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from airflow.sdk import DAG
from airflow.sdk.exceptions import ParamValidationError

from logyard.dags.factories.alter_acls import alter_acls_dag
from logyard.dags.factories.alter_broker_settings import alter_broker_settings_dag
from logyard.dags.factories.alter_quotas import alter_quotas_dag
from logyard.dags.factories.alter_user import alter_user_dag
from logyard.operators.failures import TaskRefused
from tests.support.airflow_tasks import context, run, use
from tests.support.memory_cluster import MemoryCluster

pytestmark = pytest.mark.airflow

PASSWORD = "hunter2-of-alice"
DENIED = {"topic": "pay.", "pattern": "PREFIXED", "principal": "User:bob", "operation": "READ", "permission": "DENY"}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    made = MemoryCluster({1: None})
    use(monkeypatch, made)
    monkeypatch.setenv("AIRFLOW_CONN_ALICE", json.dumps({"conn_type": "generic", "password": PASSWORD}))
    return made


def ran(make: Callable[[], DAG], form: dict[str, Any], left: list[Any] | None = None) -> dict[str, dict[str, Any]]:
    """Task → what it returned. `left` gets all that Airflow keeps of them: rendered fields, results, XComs."""
    dag = make()
    filled = {
        name: dag.params.get_param(name).resolve(form[name]) if name in form else dag.params[name]
        for name in dag.params
    }
    found = {}
    for task in dag.tasks:
        told = context() | {"params": filled}
        task.render_template_fields(told)
        found[task.task_id], _ = run(task, told)
        if left is not None:
            left += [{name: getattr(task, name) for name in task.template_fields}, found, told["ti"].values]
    return found


def test_acls_are_added_and_removed_as_they_are_given(cluster: MemoryCluster) -> None:
    cluster_wide = {"cluster": "true", "principal": "User:alice", "operation": ["Describe", "DescribeConfigs"]}
    given = ran(alter_acls_dag, {"add": [DENIED, cluster_wide]})
    assert (len(given["add"]["created"]), given["remove"]["deleted"]) == (3, [])
    assert {(one.permission, one.resource.type, one.operation) for one in cluster.acls} == {
        ("DENY", "TOPIC", "READ"),
        ("ALLOW", "CLUSTER", "DESCRIBE"),
        ("ALLOW", "CLUSTER", "DESCRIBE_CONFIGS"),
    }
    gone = ran(alter_acls_dag, {"remove": [{**DENIED, "host": "*"}]})
    assert [one["topic"] for one in gone["remove"]["deleted"]] == ["pay."]
    assert len(cluster.acls) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [("add", [{"topic": "a"}]), ("add", [{**DENIED, "password": "x"}]), ("remove", ["all"]), ("add", DENIED)],
)
def test_what_is_no_acl_begins_no_run(name: str, value: Any) -> None:
    with pytest.raises(ParamValidationError):
        alter_acls_dag().params.get_param(name).resolve(value)


def test_a_user_comes_changes_and_goes_and_the_password_is_nowhere(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    left: list[Any] = []
    form = {"user": "alice", "password_connection": "alice", "mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512"}
    assert ran(alter_user_dag, {**form, "dry_run": True}, left)["set"]["set"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert not cluster.users
    assert ran(alter_user_dag, form, left)["delete"] == {"user": "alice", "skipped": True}
    assert {one.password for one in cluster.users.values()} == {PASSWORD}
    assert ran(alter_user_dag, form, left)["set"]["set"] == []
    assert len(ran(alter_user_dag, {**form, "change_password": True}, left)["set"]["set"]) == 2
    gone = ran(alter_user_dag, {**form, "delete_user": True}, left)
    assert (gone["set"], gone["delete"]["deleted"]) == (
        {"user": "alice", "skipped": True},
        ["SCRAM-SHA-256", "SCRAM-SHA-512"],
    )
    assert not cluster.users
    said = capfd.readouterr()
    assert PASSWORD not in repr(left) + caplog.text + said.out + said.err


def test_a_form_that_asks_for_nothing_says_so(cluster: MemoryCluster) -> None:
    left: list[Any] = []
    ran(alter_user_dag, {"user": "alice"}, left)
    told = [one["outcome"]["sentence"] for one in left if isinstance(one, dict) and "outcome" in one]
    assert told == [
        "No password was to be set for user alice, nothing changed",
        "User alice stays: it was not to be deleted",
    ]
    with pytest.raises(TaskRefused, match="change: the connection whose password the user gets is not given"):
        ran(alter_user_dag, {"user": "alice", "change_password": True})
    assert not cluster.users


def test_limits_are_set_and_removed_by_name(cluster: MemoryCluster) -> None:
    set_ = {"of": "user", "user": "alice", "limits": {"producer_byte_rate": 1000, "consumer_byte_rate": 2.5}}
    assert len(ran(alter_quotas_dag, set_)["quotas"]["set"]) == 2
    ran(alter_quotas_dag, {"of": "user and client", "user": "alice", "limits": {"request_percentage": 50}})
    ran(alter_quotas_dag, {"of": "ip", "ip": "10.0.0.7", "limits": {"connection_creation_rate": 9}})
    assert cluster.quotas == {
        (("users",), ("alice",)): {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2.5},
        (("users", "clients"), ("alice", "")): {"request_percentage": 50.0},
        (("ips",), ("10.0.0.7",)): {"connection_creation_rate": 9.0},
    }
    gone = {"of": "user", "user": "alice", "limits": {"producer_byte_rate": None, "request_percentage": None}}
    assert ran(alter_quotas_dag, {**gone, "dry_run": True})["quotas"]["removed"]
    assert ran(alter_quotas_dag, gone)["quotas"]["removed"] == [
        {"of": "user alice", "key": "producer_byte_rate", "value": 1000.0}
    ]
    assert cluster.quotas[("users",), ("alice",)] == {"consumer_byte_rate": 2.5}


@pytest.mark.parametrize(
    ("of", "name"), [("user", "client"), ("client", "user"), ("user and client", "ip"), ("ip", "user")]
)
def test_a_name_of_another_kind_than_the_limits_is_refused(cluster: MemoryCluster, of: str, name: str) -> None:
    """Whoever names a client may not see that the limit was set for all that the user does."""
    form = {"of": of, name: "10.0.0.7", "limits": {"producer_byte_rate": 9, "connection_creation_rate": 9}}
    with pytest.raises(TaskRefused, match=f"^{name} '10.0.0.7' does not go with a limit of: {of}$"):
        ran(alter_quotas_dag, form)
    assert not cluster.quotas


@pytest.mark.parametrize("limits", [{"speed": 1}, {"producer_byte_rate": 0}, {"producer_byte_rate": "1"}])
def test_what_is_no_limit_begins_no_run(limits: dict[str, Any]) -> None:
    with pytest.raises(ParamValidationError):
        alter_quotas_dag().params.get_param("limits").resolve(limits)


def test_brokers_get_the_settings_of_the_form(cluster: MemoryCluster) -> None:
    form = {"broker": "default", "settings": {"log.retention.ms": 3600000, "compression.type": "lz4"}}
    assert ran(alter_broker_settings_dag, form)["alter"]["set"] == {
        "log.retention.ms": "3600000",
        "compression.type": "lz4",
    }
    ran(alter_broker_settings_dag, {"broker": 1, "settings": {"log.retention.ms": "60000"}})
    assert cluster.broker_defaults == {"log.retention.ms": "3600000", "compression.type": "lz4"}
    assert cluster.broker_config == {1: {"log.retention.ms": "60000"}}


@pytest.mark.parametrize("name", ["ssl.key.password", "listener.name.a.sasl.jaas.config"])
def test_a_run_with_a_secret_does_not_begin(name: str) -> None:
    with pytest.raises(ParamValidationError) as refused:
        alter_broker_settings_dag().params.get_param("settings").resolve({"num.io.threads": 3, name: "hunter2"})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("broker", ["", "all", -1, 1.5, None, "1, 2"])
def test_a_run_names_its_broker(broker: Any) -> None:
    with pytest.raises(ParamValidationError):
        alter_broker_settings_dag().params.get_param("broker").resolve(broker)
