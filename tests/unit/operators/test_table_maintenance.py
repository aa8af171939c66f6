"""MaintainTableOperator: what it hands to the job, and what it tells."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.settings import BadSettings
from logyard.operators import job_outcomes
from logyard.operators.airflow_names import AirflowSkipException
from logyard.operators.spark_place import SparkPlace
from logyard.operators.spark_provider import SparkSubmitOperator
from logyard.operators.table_maintenance import MaintainTableOperator
from tests.support.airflow_tasks import context, run

pytestmark = pytest.mark.airflow

SECRET = "the-catalogs-own-secret"
DONE = {
    "job": "maintenance",
    "table": "lake.t",
    "files_merged": 9,
    "files_made": 2,
    "bytes_before": 4096,
    "bytes_after": 2048,
    "not_rewritten": "",
    "snapshots_expired": 3,
    "snapshots_left": 1,
    "not_expired": "",
    "files_deleted": 12,
    "not_deleted": 0,
    "first_not_deleted": {},
}


def operator(**given: Any) -> MaintainTableOperator:
    known = {"destination": "/lake/t", "table": "lake.t", "catalog_conn_id": "yard_catalog"}
    return MaintainTableOperator(task_id="maintain", **(known | given))


def test_the_job_gets_what_was_given_and_secrets_by_files(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = {"conn_type": "iceberg", "host": "http://catalog", "login": "me", "password": SECRET}
    monkeypatch.setenv("AIRFLOW_CONN_YARD_CATALOG", json.dumps(stored))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[*]"}))
    seen: dict[str, Any] = {}

    def submit(task: Any, _: Any) -> None:
        words = task.application_args
        seen.update(words=words, catalog=json.loads(Path(words[words.index("--catalog") + 1]).read_text()))
        assert Path(task.application).name == "maintenance.py"
        Path(words[words.index("--output") + 1]).write_text(json.dumps(DONE))

    monkeypatch.setattr(SparkSubmitOperator, "execute", submit)
    result, _ = run(operator(older_than_hours="0", keep="None", target_file_mib=64), context())
    assert result["files_deleted"] == 12
    assert seen["words"][:8] == [
        *("--destination", "/lake/t", "--table", "lake.t"),
        *("--older-than-hours", "0", "--target-file-mib", "64"),
    ]
    assert seen["catalog"] == {"type": "rest", "uri": "http://catalog", "credential": f"me:{SECRET}"}
    assert SECRET not in " ".join(seen["words"])
    assert "--bootstrap-server" not in seen["words"]


def test_without_a_table_it_is_skipped_or_refused() -> None:
    with pytest.raises(AirflowSkipException):
        operator(table="", skip_without=True).execute(context())
    with pytest.raises(BadSettings, match="name the destination and the table"):
        operator(table="").job_arguments((), SparkPlace("local"))


@pytest.mark.parametrize("login", [f"me:{SECRET}", f"me:{SECRET}/more+{SECRET}="])
def test_credentials_come_by_a_connection(login: str) -> None:
    """The command line of a job is in logs, and every user of the machine sees it."""
    with pytest.raises(BadSettings, match="no credentials in the destination") as told:
        operator(destination=f"s3://{login}@lake/t").job_arguments((), SparkPlace("local"))
    assert SECRET not in str(told.value)


def test_the_outcome_is_a_sentence_and_a_small_table() -> None:
    told = job_outcomes.of_job(DONE)
    assert told.sentence == "lake.t: 9 small files became 2, 3 snapshots expired, 12 files deleted"
    assert told.rows[0] == ("small files", 9, "4.0 KiB → 2.0 KiB", None)
    nothing = DONE | {"files_merged": 0, "snapshots_expired": 0, "files_deleted": 0}
    assert job_outcomes.of_job(nothing).sentence == "lake.t: nothing was to be done"
    failed = nothing | {"not_deleted": 1, "first_not_deleted": {"s3://lake/x": "denied"}}
    assert job_outcomes.of_job(failed).sentence.endswith("; 1 file could not be deleted")
    assert job_outcomes.of_job(failed).rows[-1] == ("not deleted", "s3://lake/x", None, "denied")
