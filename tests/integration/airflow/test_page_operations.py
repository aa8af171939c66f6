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
from tests.support.real_cluster import eventually

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(300)]

SHOTS = Path(__file__).resolve().parents[3] / "build" / "screenshots"
HOSTILE = "<img src=x onerror=globalThis.taken=1>"
OUTCOME = {"sentence": "Topic orders created", "columns": ["partitions"], "rows": [[3]], "rows_in_all": 1}
AUDITED = {"sentence": "60,000 records in 36 replicas: no finding", "columns": [], "rows": [], "rows_in_all": 0}
EXPORTED = {"sentence": "16,186 rows exported in 3 files", "columns": [], "rows": [], "rows_in_all": 0}


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
        _run("export_segments", "hourly", {}, None),
        _run("export_segments", "lake", {"topics": ["payments"]}, "ops"),
        _run("delete_groups", "late", {}, "ops", "failed"),
    ]
    where = "/api/v2/dags/logyard_create_topic/dagRuns/one"
    task = {"task_id": "create", "map_index": -1, "state": "success", "try_number": 1, "start_date": "2026-11-23"}
    audit = "/api/v2/dags/logyard_audit_replicas/dagRuns/other/taskInstances"
    deal = {**task, "task_id": "batches"}
    job = {**task, "task_id": "audit", "map_index": 0}
    export = "/api/v2/dags/logyard_export_segments/dagRuns"
    skipped = {**task, "task_id": "choose", "state": "skipped"}
    exported = {**job, "task_id": "export"}
    nightly = "/api/v2/dags/logyard_compact_segments/dagRuns/nightly/taskInstances"
    broken = {**job, "task_id": "compact", "map_index": 1, "state": "failed", "try_number": 2}
    said = f"Cannot execute: {'spark-submit --conf a=b ' * 20}\nWARNING: x\njob: no room on /data\n"
    error = {"level": "error", "event": "Task failed", "error_detail": [{"exc_value": said}]}
    log = {"content": ["before", {"level": "error", "event": "an earlier one"}, error, {"level": "info", "event": "x"}]}
    ended = "/api/v2/dags/logyard_delete_groups/dagRuns/late"
    worked = [{**job, "dag_run_id": "other"}, {**exported, "dag_run_id": "lake"}]
    return {
        # The hourly run, which is newer, had no destination: all that it has is skipped.
        "/api/v2/dags/~/dagRuns/~/taskInstances/list": {"task_instances": worked, "total_entries": 2},
        f"{export}/hourly/taskInstances": {"task_instances": [skipped], "total_entries": 1},
        f"{export}/lake/taskInstances": {"task_instances": [deal, exported], "total_entries": 2},
        f"{export}/lake/taskInstances/export/xcomEntries": {"xcom_entries": [{"key": "outcome"}], "total_entries": 1},
        f"{export}/lake/taskInstances/export/xcomEntries/outcome": {"key": "outcome", "value": EXPORTED},
        # It failed before it could tell what it did; the other one has no task that failed.
        nightly: {"task_instances": [deal, broken], "total_entries": 2},
        f"{nightly}/compact/logs/2": log,
        ended: runs[-1],
        f"{ended}/taskInstances": {"task_instances": [{**skipped, "task_id": "delete"}], "total_entries": 1},
        audit: {"task_instances": [deal, job], "total_entries": 2},
        f"{audit}/audit/xcomEntries": {"xcom_entries": [{"key": "outcome"}], "total_entries": 1},
        f"{audit}/audit/xcomEntries/outcome": {"key": "outcome", "value": AUDITED},
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
    assert len(browser.script(rows)) == 7
    assert HOSTILE in browser.text(table)
    assert "failed" in browser.text(table)
    browser.screenshot(SHOTS / "operations.png")
    browser.click("(//table[@aria-label='Recent operations']//button[.='Show'])[last()]")
    browser.wait_text("No task of it failed: its time was up, or somebody marked it as failed.", 30)
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


def test_the_last_jobs_of_a_cluster_and_of_a_topic(browser: Browser, page: str) -> None:
    table = "table[aria-label='Last audit, compaction and export']"
    script = f'return [...document.querySelectorAll("{table} tbody tr")].map((row) => row.innerText)'

    def shown() -> dict[str, str]:
        rows = [" ".join(text.split()) for text in browser.script(script)]
        return {row.split()[0]: row for row in rows} if rows and "…" not in str(rows) else {}

    browser.goto(page)
    browser.wait_for(table, 60)
    eventually(lambda: "60,000 records in 36 replicas: no finding" in shown().get("Audit", ""), "what the audit found")
    assert "success" in shown()["Audit"]
    assert "failed" in shown()["Compaction"]
    failure = "The task compact [1] failed: job: no room on /data"
    eventually(lambda: failure in shown()["Compaction"], "what is known of the failure")
    link = browser.script(f"""return document.querySelector("{table} [data-testid=failure] a").getAttribute("href")""")
    assert link.endswith("/dags/logyard_compact_segments/runs/nightly/tasks/compact/mapped/1")
    browser.screenshot(SHOTS / "last-jobs.png")
    eventually(lambda: "16,186 rows exported in 3 files" in shown().get("Export", ""), "what the export did")
    browser.goto(f"{page}?topic=orders")
    browser.wait_for(table, 60)
    eventually(shown, "they are known")
    assert shown()["Audit"] == "Audit – – –"  # it was about another topic
    assert shown()["Export"] == "Export – – –"  # so was this, and the hourly one did nothing
    assert "A run over all topics." in shown()["Compaction"]
    assert severe(browser.console()) == []


def test_dags_that_choose_the_cluster_are_given_it(browser: Browser) -> None:
    runs = [
        _run("create_topic", "here", {"topic": "orders", "logyard_conn_id": "logyard_default"}, "here"),
        _run("create_topic", "elsewhere", {"topic": "orders", "logyard_conn_id": "kafka_west"}, "elsewhere"),
        _run("create_topic", "without", {"topic": "orders"}, "without"),
    ]
    answers = {"/api/v2/dags/~/dagRuns/list": {"dag_runs": runs, "total_entries": len(runs)}}
    for default, shown in (("kafka_west", ["here"]), ("logyard_default", ["here", "without"])):
        with hosted(MemoryCluster({1: None}), acts=default, airflow=answers) as address:
            browser.goto(f"{address}/{PAGE}")
            browser.wait_for("table[aria-label='Recent operations']", 60)
            text = browser.text("table[aria-label='Recent operations']")
            assert [who for who in ("here", "elsewhere", "without") if who in text.split()] == shown
            # Else it asks a host that has ended, and the console tells of it.
            browser.goto("about:blank")
    with hosted(MemoryCluster({1: None}), acts="kafka_west") as address:
        browser.goto(f"{address}/{PAGE}?view=topics")
        browser.click("//button[.='Create topic']", 60)
        browser.fill("input[name=topic]", "fresh")
        browser.click("//button[.='Review']")
        browser.click("//summary[contains(., 'Starts DAG')]")
        browser.wait_text('"logyard_conn_id": "logyard_default"')
        browser.goto("about:blank")
    assert severe(browser.console()) == []
