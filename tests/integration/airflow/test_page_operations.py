"""Recent operations of a cluster and of a topic, in a browser; Airflow's answers are as its API gives them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from tests.support.browser import Browser, severe
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_host import hosted
from tests.support.page_steps import PAGE

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(300)]

SHOTS = Path(__file__).resolve().parents[3] / "build" / "screenshots"
HOSTILE = "<img src=x onerror=globalThis.taken=1>"
OUTCOME = {"sentence": "Topic orders created", "columns": ["partitions"], "rows": [[3]], "rows_in_all": 1}


def _run(dag: str, run_id: str, conf: dict[str, Any], who: str | None, state: str = "success") -> dict[str, Any]:
    return {
        "dag_id": f"logyard_{dag}",
        "dag_run_id": run_id,
        "state": state,
        "conf": conf,
        "run_type": "manual",
        "start_date": "2026-11-23T07:00:00Z",
        "end_date": "2026-11-23T07:00:12Z",
        "triggering_user_name": who,
    }


def _airflow() -> dict[str, Any]:
    created = _run("create_topic", "one", {"topic": "orders"}, HOSTILE)
    plan = {"partitions": [{"topic": "orders", "partition": 0, "replicas": [1]}]}
    runs = [
        _run("compact_segments", "nightly", {}, None, "failed"),
        created,
        _run("reassign_replicas", "moves", {"plan": plan}, "ops"),
        _run("audit_replicas", "other", {"topics": ["payments"]}, "ops"),
    ]
    where = "/api/v2/dags/logyard_create_topic/dagRuns/one"
    task = {"task_id": "create", "map_index": -1, "state": "success", "try_number": 1, "start_date": "2026-11-23"}
    return {
        "/api/v2/dags/~/dagRuns/list": {"dag_runs": runs, "total_entries": len(runs)},
        where: created,
        f"{where}/taskInstances": {"task_instances": [task], "total_entries": 1},
        f"{where}/taskInstances/create/xcomEntries": {"xcom_entries": [{"key": "outcome"}], "total_entries": 1},
        f"{where}/taskInstances/create/xcomEntries/outcome": {"key": "outcome", "value": OUTCOME},
    }


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    cluster = MemoryCluster({1: None})
    MemoryClient(cluster).create_topic(NewTopic("orders", 1, 1))
    cluster.tick()
    with hosted(cluster, acts=True, airflow=_airflow()) as address:
        yield f"{address}/{PAGE}"


def test_what_was_done_on_a_cluster_and_on_a_topic(browser: Browser, page: str) -> None:
    table = "table[aria-label='Recent operations']"
    rows = f'return [...document.querySelectorAll("{table} tbody tr")].map((row) => row.innerText)'
    browser.goto(page)
    browser.wait_for(table, 60)
    assert len(browser.script(rows)) == 4
    assert HOSTILE in browser.text(table)
    assert "failed" in browser.text(table)
    browser.screenshot(SHOTS / "operations.png")
    browser.goto(f"{page}?topic=orders")
    browser.wait_for(table, 60)
    shown = browser.script(rows)
    assert [row.split()[0] for row in shown] == ["logyard_create_topic", "logyard_reassign_replicas"]
    assert "12 s" in shown[0]
    browser.click("(//table[@aria-label='Recent operations']//button[.='Show'])[1]")
    browser.wait_text("Topic orders created", 30)
    browser.screenshot(SHOTS / "operations-of-a-topic.png")
    assert browser.script("return globalThis.taken ?? null") is None
    assert severe(browser.console()) == []
