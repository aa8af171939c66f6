"""Results of DAG runs by task, those of a mapped task included."""

from functools import partial
from typing import Any

import httpx
import pytest

from logyard.local.airflow.api import AirflowApi
from logyard.local.demo.dags import DagRuns
from logyard.local.demo.steps import result


def _answer(request: httpx.Request) -> httpx.Response:
    path = request.url.path
    if path.endswith("/token"):
        return httpx.Response(201, json={"access_token": "t"})
    if path.endswith("/dagRuns"):
        return httpx.Response(200, json={"dag_run_id": "r", "state": "queued"})
    if path.endswith("/taskInstances"):
        tasks = [("choose", -1), ("compact", 0)]
        return httpx.Response(200, json={"task_instances": [_task(name, index) for name, index in tasks]})
    if "/xcomEntries/" in path:
        # Airflow knows a mapped task's result by its map index only.
        wanted = {"choose": "-1", "compact": "0"}[path.split("/")[-3]]
        found = request.url.params["map_index"] == wanted
        return httpx.Response(200 if found else 404, json={"value": {"replicas_compacted": 18}} if found else {})
    return httpx.Response(200, json={"state": "success"})


def _task(name: str, index: int) -> dict[str, Any]:
    return {"task_id": name, "state": "success", "try_number": 1, "map_index": index, "start_date": "2026"}


def test_a_mapped_tasks_result_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    answering = partial(AirflowApi, transport=httpx.MockTransport(_answer))
    monkeypatch.setattr("logyard.local.demo.dags.AirflowApi", answering)
    with DagRuns("http://airflow", "u", "p") as runs:
        (returned,) = runs.run_all([("logyard_compact_segments", {})])
    assert set(returned) == {"choose", "compact"}
    assert result(returned, "replicas_compacted") == {"replicas_compacted": 18}
    assert returned["compact"] == {"replicas_compacted": 18}
