"""`grant_access` and `revoke_access`, their forms rendered and their tasks run on the cluster in memory."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from airflow.sdk import DAG

from logyard.admin.acls import acls
from logyard.dags.factories.grant_access import acls_of, grant_access_dag
from logyard.dags.factories.revoke_access import revoke_access_dag
from tests.support.airflow_tasks import context, run, use
from tests.support.memory_cluster import MemoryCluster

pytestmark = pytest.mark.airflow

FORM = {
    "user": "loader",
    "writes": ["orders."],
    "reads": ["flights."],
    "groups": ["readers."],
    "transactional_ids": [],
    "prefixed": True,
}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    made = MemoryCluster({1: None})
    use(monkeypatch, made)
    monkeypatch.setenv("AIRFLOW_CONN_LOADER", json.dumps({"conn_type": "generic", "password": "hunter2"}))
    return made


def ran(make: Callable[[], DAG], form: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Task → what it returned."""
    dag = make()
    filled = {**{name: dag.params[name] for name in dag.params if name != "user"}, **form}
    found = {}
    for task in dag.tasks:
        told = context() | {"params": filled}
        task.render_template_fields(told)
        found[task.task_id], _ = run(task, told)
    return found


def test_a_user_gets_what_the_form_says_and_loses_it(cluster: MemoryCluster) -> None:
    form = {**FORM, "password_connection": "loader", "limits": {"producer_byte_rate": 1000}}
    assert len(ran(grant_access_dag, {**form, "dry_run": True})["acls"]["created"]) == 6
    assert not cluster.acls
    given = ran(grant_access_dag, form)
    assert given["user"]["set"] == ["SCRAM-SHA-512"]
    found = {(one.resource.type, one.resource.name, one.resource.pattern, one.operation) for one in cluster.acls}
    assert found == {
        *(("TOPIC", "orders.", "PREFIXED", operation) for operation in ("WRITE", "DESCRIBE", "CREATE")),
        *(("TOPIC", "flights.", "PREFIXED", operation) for operation in ("READ", "DESCRIBE")),
        ("GROUP", "readers.", "PREFIXED", "READ"),
    }
    assert {one.principal for one in cluster.acls} == {"User:loader"}
    assert given["quotas"]["set"] == [{"of": "user loader", "key": "producer_byte_rate", "value": 1000.0}]
    again = ran(grant_access_dag, form)
    assert (again["user"]["set"], again["acls"]["created"], again["quotas"]["set"]) == ([], [], [])

    kept = ran(revoke_access_dag, FORM)
    assert (kept["user"], len(kept["acls"]["deleted"]), kept["quotas"]["removed"]) == (
        {"user": "loader", "skipped": True},
        6,
        [],
    )
    gone = ran(revoke_access_dag, {**FORM, "delete_user": True, "remove_limits": True})
    assert gone["user"]["deleted"] == ["SCRAM-SHA-512"]
    assert (gone["acls"]["deleted"], len(gone["quotas"]["removed"])) == ([], 1)
    assert not cluster.acls


def test_what_the_form_leaves_empty_is_not_touched(cluster: MemoryCluster) -> None:
    nothing = {"user": "loader"}
    assert ran(grant_access_dag, nothing) == {
        "user": {"user": "loader", "skipped": True},
        "acls": {"created": [], "existing": 0, "dry_run": False},
        "quotas": {"set": [], "removed": [], "dry_run": False},
    }


def test_a_star_is_every_topic_whatever_the_pattern() -> None:
    found = [acls.parse(one) for one in acls_of({**FORM, "writes": ["*"], "reads": [], "groups": []})]
    assert {(one.resource.name, one.resource.pattern) for parsed in found for one in parsed} == {("*", acls.LITERAL)}
