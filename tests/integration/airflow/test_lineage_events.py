"""What OpenLineage's own provider writes when real DAGs create, write and export a topic."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import CONFIG
from tests.support.airflow_yard import Yard, running_yard

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(600)]

WAIT_S = 60


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lineage") / "events.jsonl"


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory, told: Path) -> Iterator[Yard]:
    transport = {"type": "file", "log_file_path": str(told), "append": True}
    settings = {"AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport), "AIRFLOW__OPENLINEAGE__NAMESPACE": "yard"}
    awaited = ["logyard_create_topic", "logyard_send_record", "logyard_export_segments"]
    with running_yard(tmp_path_factory.mktemp("yard"), CONFIG, awaited, settings=settings) as running:
        yield running


def test_what_was_created_written_and_exported_is_told(yard: Yard, told: Path, tmp_path: Path) -> None:
    yard.api.run_dag("logyard_create_topic", {"topic": "told", "partitions": 2}, 120)
    yard.api.run_dag("logyard_send_record", {"topic": "told", "key": "k", "value": "v", "partition": 1}, 120)
    yard.api.run_dag("logyard_export_segments", {"topics": ["told"], "destination": str(tmp_path / "lake")}, 300)
    server = yard.cluster.bootstrap.split(",")[0]
    topic = (f"kafka://{server}", "told")

    created = _ended(told, "logyard_create_topic.create")
    assert [(one["namespace"], one["name"]) for one in created["outputs"]] == [topic]
    sent = _ended(told, "logyard_send_record.send")
    (written,) = sent["outputs"]
    assert (written["namespace"], written["name"]) == topic
    facets = written["outputFacets"]
    assert (facets["outputStatistics"]["rowCount"], facets["outputStatistics"]["size"]) == (1, 2)
    assert facets["logyard_offsets"]["partitions"] == [{"partition": 1, "start": 0, "end": 1}]
    exported = _ended(told, "logyard_export_segments.export")
    (read,), (made,) = exported["inputs"], exported["outputs"]
    assert (read["namespace"], read["name"]) == topic
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 1
    assert (made["namespace"], made["name"]) == ("file", str(tmp_path / "lake"))
    assert made["outputFacets"]["outputStatistics"]["rowCount"] == 1


def _ended(told: Path, job: str) -> dict[str, Any]:
    """The event of the task's success, which comes shortly after it."""
    deadline = time.monotonic() + WAIT_S
    while True:
        lines = told.read_text().splitlines() if told.exists() else []
        events = [json.loads(line) for line in lines if line.strip()]
        found = [one for one in events if one["job"]["name"] == job and one["eventType"] == "COMPLETE"]
        if found:
            return dict(found[0])
        said = [(one["job"]["name"], one["eventType"]) for one in events]
        assert time.monotonic() < deadline, f"nothing of {job} among {said}"
        time.sleep(1)
