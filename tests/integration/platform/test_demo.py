"""The main job, end to end, as `make demo` runs it: nothing in it is a stand-in."""

import io
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from logyard.local.airflow import settings
from logyard.local.demo import dataset
from logyard.local.demo import run as demo
from logyard.local.demo.steps import STEPS
from tests.support.kept_kernels import KERNELS

# One of each kind of DAG, on the platform with the most in it: the secured one. A plain one is in test_up_down.py.
SHORT = ("create", "load", "compact", "reassign", "recover")
# Of 336,776: some segments in each partition.
FEWER = 60_000
# Alone on two cores it takes 190 s. Beside other tests, or on a slower machine, it may take three times as long.
TOTAL_S, ENDING_S = 600, 120
pytestmark = [
    pytest.mark.integration,
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.timeout(TOTAL_S + ENDING_S + 30),
]


def test_the_short_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of SHORT over FEWER flights, with loops that are compiled."""
    (tmp_path / "kernels").symlink_to(KERNELS)
    monkeypatch.setattr(demo, "STEPS", [step for step in STEPS if step.name in SHORT])
    monkeypatch.setattr(dataset, "load", lambda: dataset.from_table(dataset.read(FEWER)))
    read_dags_once(monkeypatch)
    said = io.StringIO()
    demo.run(tmp_path / "demo", secure=True, console=Console(file=said, width=120))
    assert "passed after" in said.getvalue()
    figures = figures_of(tmp_path)
    assert list(figures) == ["start", *SHORT]
    assert figures["start"]["secured"] is True
    assert figures["load"]["events"] == figures["compact"]["records_before"] > figures["compact"]["records_after"]
    assert figures["reassign"]["bytes_moved_off"] > 0
    assert figures["recover"]["epoch_after"] > figures["recover"]["epoch_before"]
    tells_no_password(tmp_path, said.getvalue())
    nothing_runs(tmp_path)


def read_dags_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow reads every DAG's file again and again: 12 s of CPU at least, for files that do not change."""
    made = settings.environment

    def environment(*given: Any) -> dict[str, str]:
        return made(*given) | {"AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": str(TOTAL_S)}

    monkeypatch.setattr("logyard.local.airflow.processes.environment", environment)


def figures_of(directory: Path) -> dict[str, dict[str, Any]]:
    report = json.loads((directory / "demo" / "report.json").read_text())
    assert report["passed"] is True
    return {step["name"]: step["figures"] for step in report["steps"]}


def tells_no_password(directory: Path, said: str) -> None:
    passwords = json.loads((directory / "demo" / "cluster" / "security" / "passwords.json").read_text())
    shown = said + (directory / "demo" / "report.json").read_text()
    assert [name for name, password in passwords.items() if password in shown] == []


def nothing_runs(directory: Path) -> None:
    for table in ("cluster", "airflow"):
        assert json.loads((directory / "demo" / table / "processes.json").read_text()) == {}


@pytest.mark.long
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "secured"])
def test_the_main_job(tmp_path: Path, secure: bool) -> None:
    options = ["--secure"] if secure else []
    command = [sys.executable, "-m", "logyard.cli.main", "demo", "--dir", str(tmp_path), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        try:
            said, errors = demo.communicate(timeout=TOTAL_S)
        except subprocess.TimeoutExpired:
            # Interrupted, it ends what it started; killed, it would leave brokers and Airflow behind.
            demo.send_signal(signal.SIGINT)
            said, errors = demo.communicate(timeout=ENDING_S)
            pytest.fail(f"not done after {TOTAL_S} s\n{said}\n{errors}")
    assert demo.returncode == 0, errors
    figures = figures_of(tmp_path)
    assert figures["start"]["secured"] is secure
    assert list(figures) == [
        "start", "create", "load", "audit", "compact", "export", "reassign", "recover", "audit_again"
    ]  # fmt: skip
    assert (figures["load"]["events"], figures["load"]["keys"]) == (334_264, 4_043)
    assert figures["load"]["without_key_refused"] == figures["load"]["events_unassigned"] == 2_512
    assert figures["compact"]["records_after"] == figures["export"]["rows"] < figures["compact"]["records_before"]
    assert figures["export"]["rows_of_second_run"] == 0
    assert figures["reassign"]["bytes_moved_off"] > 0
    assert figures["recover"]["epoch_after"] > figures["recover"]["epoch_before"]
    assert figures["audit_again"]["events_sent_meanwhile"] > 100
    assert "passed after" in said
    security = tmp_path / "demo" / "cluster" / "security"
    assert security.is_dir() is secure
    if secure:
        tells_no_password(tmp_path, said + errors)
    nothing_runs(tmp_path)
