"""The driver around the steps, with steps of its own: reporting, failing, cleaning up."""

import errno
import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from logyard.admin.ports import EnsembleUnreachable
from logyard.local.demo import run as demo
from logyard.local.demo.report import Report
from logyard.local.demo.steps import Step, result
from logyard.local.errors import LocalError
from logyard.local.interrupts import Interrupted

Run = Callable[..., tuple[dict[str, Any], str, list[str]]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the demo with these steps on a platform that only keeps book; returns report, output and calls."""
    calls: list[str] = []

    class Platform:
        def __init__(self, directory: Path, say: object) -> None:
            self.airflow = SimpleNamespace(url="http://127.0.0.1:1")

        def clear(self) -> None:
            calls.append("clear")

        def abandon(self) -> None:
            calls.append("abandon")

    monkeypatch.setattr(demo, "Platform", Platform)

    def go(steps: list[Step], keep: bool = False, expected: type[BaseException] | None = None) -> Any:
        calls.clear()
        monkeypatch.setattr(demo, "STEPS", steps)
        traffic = SimpleNamespace(close=lambda: calls.append("traffic closed"))
        monkeypatch.setattr(demo, "start_yard", lambda *parts: SimpleNamespace(traffic=traffic))
        console = Console(file=io.StringIO(), width=120)
        error = ""
        if expected is None:
            demo.run(tmp_path / "demo", keep=keep, console=console)
        else:
            with pytest.raises(expected) as raised:
                demo.run(tmp_path / "demo", keep=keep, console=console)
            error = str(raised.value)
        report = json.loads((tmp_path / "demo" / "report.json").read_text())
        return report, error or console.file.getvalue(), list(calls)  # type: ignore[attr-defined]

    return go


def failing(error: BaseException) -> Callable[[Any], Any]:
    def do(yard: Any) -> Any:
        raise error

    return do


def test_all_is_well(run: Run) -> None:
    report, said, calls = run(
        [Step("one", "do one", lambda yard: {"records": 12}), Step("two", "do two", lambda yard: {})]
    )
    assert report["passed"] is True
    assert [step["name"] for step in report["steps"]] == ["start", "one", "two"]
    assert report["steps"][1]["figures"] == {"records": 12}
    assert "records: 12" in said
    assert calls == ["clear", "traffic closed", "abandon"]


@pytest.mark.parametrize("passes", [True, False])
def test_a_report_that_cannot_be_written_leaves_nothing_running(
    run: Run, monkeypatch: pytest.MonkeyPatch, passes: bool
) -> None:
    write = Report.write

    def full(report: Report, path: Path) -> None:
        write(report, path)
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Report, "write", full)
    do = (lambda yard: {}) if passes else failing(LocalError("the disk is full"))
    _, error, calls = run([Step("one", "do one", do)], expected=LocalError)
    assert error.endswith("report.json: No space left on device" if passes else "step 1 (one): the disk is full")
    assert calls == ["clear", "traffic closed", "abandon"]


def test_an_error_of_the_cluster_is_one_of_its_step(run: Run) -> None:
    step = Step("one", "do one", failing(EnsembleUnreachable("no ZooKeeper server answers")))
    report, error, _ = run([step], expected=LocalError)
    assert error == report["error"] == "step 1 (one): no ZooKeeper server answers"
    assert report["steps"][1]["error"] == "no ZooKeeper server answers"


def test_a_failure_names_step_and_reason_and_ends_everything(run: Run) -> None:
    steps = [Step("one", "do one", failing(LocalError("a record is lost"))), Step("two", "do two", lambda yard: {})]
    report, error, calls = run(steps, expected=LocalError)
    assert error == "step 1 (one): a record is lost"
    assert report["passed"] is False
    assert report["error"] == error
    assert [step["passed"] for step in report["steps"]] == [True, False]
    assert calls[-1] == "abandon"


def test_an_interrupt_ends_everything_too(run: Run) -> None:
    report, _, calls = run([Step("one", "do one", failing(Interrupted(2)))], expected=Interrupted)
    assert (report["passed"], report["error"]) == (False, "SIGINT")
    assert calls[-2:] == ["traffic closed", "abandon"]


def test_keep_leaves_it_running(run: Run) -> None:
    assert "abandon" not in run([], keep=True)[2]


def test_two_demos_in_one_place_are_refused(run: Run, tmp_path: Path) -> None:
    def second(yard: Any) -> Any:
        with pytest.raises(LocalError, match="another demo runs"):
            demo.run(tmp_path / "demo")
        return {}

    run([Step("one", "do one", second)])


def test_the_task_that_returned_it_is_found() -> None:
    returned = {"plan": None, "audit": {"verdict": "ok"}}
    assert result(returned, "verdict") == {"verdict": "ok"}
    with pytest.raises(LocalError, match="no task returned rows"):
        result(returned, "rows")
