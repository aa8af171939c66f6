"""The process that workers are forked from: prepared for a job, silent on standard output, only where it is found."""

import subprocess
import sys

import pytest

from logyard.spark_jobs import session, warm, worker_daemon

PREPARED = """
import sys
from logyard.spark_jobs import worker_daemon
worker_daemon.prepare("audit")
known = ("numba", "pyarrow", "pyspark.worker", "logyard.spark_jobs.audit.segment", "pandas")
print(*(name in sys.modules for name in known))
"""


def test_what_an_audit_needs_is_there_before_the_first_fork_and_no_more() -> None:
    done = subprocess.run([sys.executable, "-c", PREPARED], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout == "True True True True False\n"


def test_what_cannot_be_prepared_is_left_to_the_tasks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(job: str) -> None:
        print("loading", job)
        raise ImportError("no module named numba")

    monkeypatch.setattr(warm, "load", broken)
    monkeypatch.setattr("gc.freeze", lambda: None)
    worker_daemon.prepare("export")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("settings", "python", "is_ours"),
    [
        ({"spark.master": "local[2,3]"}, sys.executable, True),
        ({"spark.master": "local-cluster[2,1,1024]"}, sys.executable, False),
        ({"spark.master": "yarn"}, sys.executable, False),
        ({"spark.master": "spark://127.0.0.1:7077"}, sys.executable, False),
        ({}, sys.executable, False),
        ({"spark.master": "local[2]"}, "/another/python", False),
        ({"spark.master": "local[2]", "spark.pyspark.python": "/another/python"}, sys.executable, False),
        ({"spark.master": "local[2]", "spark.pyspark.python": sys.executable}, "/another/python", True),
    ],
)
def test_only_workers_of_this_python_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], python: str, is_ours: bool
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    assert session.works_here(settings) is is_ours


def test_not_out_of_a_zip_that_workers_get_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setattr(session, "__file__", "/build/logyard-spark.zip/logyard/spark_jobs/session.py")
    assert not session.works_here({"spark.master": "local[2]"})
