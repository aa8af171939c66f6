import io
import json
from pathlib import Path

from rich.console import Console

from logyard.local.demo.progress import Display
from logyard.local.demo.report import Report, StepReport, shown


def test_figures_for_people() -> None:
    assert [shown(value) for value in (1234567, 12.345, True, None, "x")] == ["1,234,567", "12.3", "yes", "-", "x"]


def test_the_file_says_what_the_table_says(tmp_path: Path) -> None:
    report = Report("2026-01-01T00:00:00Z", {"cores": 2})
    report.steps.append(StepReport(1, "create", "create topics", 1.5, True, {"partitions": 6}))
    report.steps.append(StepReport(2, "load", "load flights", 0.1, False, {}, "no broker answers"))
    report.error = "step 2: no broker answers"
    report.write(tmp_path / "demo" / "report.json")
    written = json.loads((tmp_path / "demo" / "report.json").read_text())
    assert written["steps"][0]["figures"] == {"partitions": 6}
    assert written["passed"] is False
    console = Console(file=io.StringIO(), width=100)
    report.print(console)
    said = console.file.getvalue()  # type: ignore[attr-defined]
    for words in ("create topics", "partitions: 6", "FAILED", "no broker answers"):
        assert words in said


def test_plain_lines_where_there_is_no_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=False, width=40)
    display = Display(console)
    with display.step(2, 8, "load flights"):
        display.note("waiting for [every] broker of the cluster to answer")
        display.note("waiting for [every] broker of the cluster to answer")
        display.advance(10, 10)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[:3] == [
        "[2/8] load flights",
        "      waiting for [every] broker of the cluster to answer",
        "      10 of 10",
    ]
    assert lines[3].startswith("[2/8] load flights: done in ")
    assert len(lines) == 4


def test_a_terminal_sees_what_is_waited_for_and_then_the_result() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    display = Display(console)
    with display.step(1, 8, "create topics"):
        display.note("DAG logyard_create_topic")
        display.advance(3, 10)
        display.note("ready")
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "create topics: ready" in said
    assert "[1/8] create topics: done in " in said
