"""Airflow sends the events of the try that ends well: it tells what the failed ones before it have written too."""

import json
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from airflow.sdk import AssetAlias

from logyard.operators.job_summary import JobFailed
from logyard.operators.spark import CompactSegmentsOperator, ExportSegmentsOperator
from tests.support.airflow_tasks import Store, context
from tests.support.spark_submit import spark_at, submit

pytestmark = pytest.mark.airflow


@pytest.fixture(autouse=True)
def connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps({"conn_type": "logyard", "host": "a:1"}))
    spark_at(monkeypatch, "local[*]")


class Events:
    """`outlet_events`: what is added by aliases, by the assets' URIs."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}

    def __getitem__(self, alias: AssetAlias) -> "Events":
        return self

    def add(self, asset: Any, extra: Any) -> None:
        self.told[asset.uri] = json.loads(json.dumps(extra))


def row(failed: str | None = None) -> dict[str, Any]:
    return {"failed": failed, "partitions": 1, "rows": 5}


def exported(offsets: dict[str, tuple[int, int]], failed: dict[str, str], version: int) -> str:
    """A summary: every offset of the ranges is a row, and a file of nine bytes has those of a partition."""
    rows = {name: end - start for name, (start, end) in offsets.items()}
    topics = sorted({name[:-2] for name in offsets})
    return json.dumps(
        {
            "job": "export",
            "rows": sum(rows.values()),
            "dead_letters": 0,
            "files": sum(map(bool, rows.values())),
            "bytes": 9 * sum(map(bool, rows.values())),
            "topics": topics,
            "manifest_version": version,
            "offsets": {name: {"start": s, "end": e, "rows": rows[name]} for name, (s, e) in offsets.items()},
            "by_topic": {topic: row(failed.get(topic)) for topic in topics},
            "topics_failed": failed,
            "failed": {},
        }
    )


def tried(operator: Any, store: Store, *, cleared: int = 0) -> dict[str, Any]:
    """The events of a try; those of one that fails are lost."""
    events = Events()
    ctx = context(store) | {"outlet_events": events}
    ctx["ti"].max_tries = cleared
    operator.execute(ctx)
    return events.told


@pytest.mark.parametrize("cleared", [0, 1])
def test_rows_of_a_failed_try_are_told_by_the_next(monkeypatch: pytest.MonkeyPatch, cleared: int) -> None:
    """Topic a is exported, b only in part. The next try, or the cleared task, finds no more than the rest of b."""
    store = Store()
    operator = ExportSegmentsOperator(task_id="e", topics=["a", "b"], destination="/out")
    submit(monkeypatch, exported({"a-0": (0, 5), "b-0": (10, 13), "b-1": (0, 0)}, {"b": "no leader"}, 7), fails=True)
    with pytest.raises(JobFailed):
        tried(operator, store)
    submit(monkeypatch, exported({"b-0": (13, 14), "b-1": (0, 2)}, {}, 8))
    told = tried(operator, store, cleared=cleared)["file:///out"]
    assert (told["rows"], told["files"], told["bytes"]) == (11, 4, 36)
    assert (told["topics"], told["manifest_version"]) == (["a", "b"], 8)
    assert told["offsets"] == {
        "a-0": {"start": 0, "end": 5, "rows": 5},
        "b-0": {"start": 10, "end": 14, "rows": 4},
        "b-1": {"start": 0, "end": 2, "rows": 2},
    }
    submit(monkeypatch, exported({"a-0": (5, 6), "b-0": (14, 14), "b-1": (2, 2)}, {}, 9))
    assert tried(operator, store)["file:///out"]["rows"] == 1, "the others were told"


def test_rows_are_told_where_the_last_try_has_nothing_left_to_export(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only of the destination that the task has now."""
    store = Store()
    operator = ExportSegmentsOperator(task_id="e", topics=["a"], destination="/out")
    submit(monkeypatch, exported({"a-0": (0, 5)}, {"a": "its lease was lost at the end"}, 7), fails=True)
    with pytest.raises(JobFailed):
        tried(operator, store)
    submit(monkeypatch, exported({"a-0": (5, 5)}, {}, 7))
    elsewhere = ExportSegmentsOperator(task_id="e", topics=["a"], destination="/other")
    assert tried(elsewhere, Store(store)) == {}
    told = tried(operator, store)["file:///out"]
    assert (told["rows"], told["offsets"]) == (5, {"a-0": {"start": 0, "end": 5, "rows": 5}})


def test_a_topic_that_a_failed_try_has_compacted_has_its_event(monkeypatch: pytest.MonkeyPatch) -> None:
    def summary(details: dict[str, tuple[str, int, int]], failed: dict[str, str]) -> str:
        found = {
            name: {
                "outcome": outcome,
                "reason": None,
                "records_before": before,
                "records_after": after,
                "bytes_before": before,
                "bytes_after": after,
            }
            for name, (outcome, before, after) in details.items()
        }
        figures = dict.fromkeys(("partitions", "compacted", "failed", "records_before", "records_after"), 1)
        rows = {name[:-2]: row(failed.get(name[:-2])) for name in details}
        figures |= {"bytes_before": 1, "bytes_after": 1}
        return json.dumps({"job": "compact", **figures, "details": found, "by_topic": rows, "topics_failed": failed})

    store = Store()
    operator = CompactSegmentsOperator(task_id="c", topics=["a", "b"])
    first = {"a-0": ("compacted", 10, 4), "b-0": ("compacted", 8, 6), "b-1": ("failed", 0, 0)}
    submit(monkeypatch, summary(first, {"b": "no leader"}), fails=True)
    with pytest.raises(JobFailed):
        tried(operator, store)
    submit(monkeypatch, summary({"b-0": ("compacted", 6, 5), "b-1": ("compacted", 3, 1)}, {}))
    told = tried(operator, store)
    assert told.keys() == {"kafka://a:1/a", "kafka://a:1/b"}
    of_a, of_b = told["kafka://a:1/a"], told["kafka://a:1/b"]
    assert (of_a["change"], of_a["records_before"], of_a["records_after"]) == ("compacted", 10, 4)
    assert (of_b["records_before"], of_b["records_after"], sorted(of_b["partitions"])) == (11, 6, ["0", "1"])
    assert of_b["partitions"]["0"]["records_before"] == 8
