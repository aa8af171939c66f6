"""`make bench` names what got slower, on a machine that may be slower or busier itself."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import slower
from tests.benchmarks.slower import YARDSTICK

PRODUCE = (YARDSTICK, 20.0, 5.0)
FETCH = ("Fetch", 150.0, 60.0)
METADATA = ("Metadata", 10.0, None)


def figures(*rows: tuple[str, float, float | None]) -> dict[str, list[dict[str, Any]]]:
    made = [{"what": what, "value": value, "unit": "µs", "ceiling": ceiling} for what, value, ceiling in rows]
    return {"broker": [*made, {"what": "Start", "value": 9.0, "unit": "s", "ceiling": None}], "size": []}


def test_a_slower_machine_is_not_a_slower_broker() -> None:
    before = figures(PRODUCE, FETCH, METADATA)
    assert slower.slower(before, before) == []
    twice = figures((YARDSTICK, 40.0, 10.0), ("Fetch", 300.0, 120.0), ("Metadata", 20.0, None))
    assert slower.slower(twice, before) == []


def test_a_row_that_grew_by_more_than_a_tenth_is_named() -> None:
    before = figures(PRODUCE, FETCH, METADATA)
    now = figures(PRODUCE, ("Fetch", 164.0, 60.0), ("Metadata", 11.2, None))
    (line,) = slower.slower(now, before)
    assert line == "Metadata: 2.2 x bare work, was 2.0 x (12% more)"
    (line,) = slower.slower(figures(PRODUCE, ("Fetch", 167.0, 60.0), METADATA), before)
    assert line.startswith("Fetch: 2.8 x bare work")


def paced(produce_us: float, pace_us: float) -> dict[str, list[dict[str, Any]]]:
    rows = figures((YARDSTICK, produce_us, 5.0))
    pace = {"what": slower.PACE, "value": pace_us, "unit": slower.PACE_UNIT, "ceiling": None}
    return {"broker": [pace, *rows["broker"]]}


def test_another_interpreter_decides_nothing_and_is_named() -> None:
    before = paced(20.0, 80.0)
    text, is_worse = slower.report(paced(30.0, 120.0), before, is_busy=False)
    assert not is_worse
    assert "plain Python takes 24.0 x bare work, was 16.0 x" in text
    text, is_worse = slower.report(paced(30.0, 84.0), before, is_busy=False)
    assert is_worse
    assert "plain Python" not in text


def test_a_row_that_is_gone_is_named_and_a_new_one_is_not() -> None:
    assert slower.slower(figures(PRODUCE, ("New", 1.0, None)), figures(PRODUCE, FETCH)) == ["Fetch: no longer measured"]


def test_a_run_of_other_parts_says_nothing() -> None:
    assert slower.slower({"size": []}, figures(PRODUCE)) == []


def test_figures_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slower, "COMMITTED", tmp_path / "figures.json")
    assert slower.committed() == {}
    assert slower.keep(figures(PRODUCE), is_busy=False) == ["broker"]
    assert slower.ratios(slower.committed()) == {YARDSTICK: 4.0}
    assert set(json.loads((tmp_path / "figures.json").read_text())) == {"broker"}


def counts(value: float, version: str = "3.11", what: str = "Produce 279 B, counted") -> slower.Figures:
    return {"counts": [{"what": what, "value": value, "unit": "bytecodes", "note": f"Python {version}"}]}


def test_what_a_busy_machine_measured_is_not_kept_but_what_was_counted_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slower, "COMMITTED", tmp_path / "figures.json")
    assert slower.keep({**figures(PRODUCE), **counts(3000)}, is_busy=True) == ["counts"]
    assert set(json.loads((tmp_path / "figures.json").read_text())) == {"counts"}


def test_a_request_that_takes_a_fiftieth_more_bytecodes_is_named() -> None:
    assert slower.dearer(counts(3050), counts(3000)) == []
    assert slower.dearer(counts(3100), counts(3000)) == ["Produce 279 B, counted: 3,100 bytecodes, was 3,000 (3% more)"]
    assert slower.dearer(counts(1, what="New"), counts(3000)) == ["Produce 279 B, counted: no longer counted"]


def test_counts_of_another_python_are_not_compared() -> None:
    assert slower.dearer(counts(9000, "3.13"), counts(3000)) == []
    assert slower.report(counts(9000, "3.13"), counts(3000), is_busy=False)[0].startswith("nothing is compared")


def test_only_counts_decide_on_a_busy_machine() -> None:
    before = {**figures(PRODUCE), **counts(3000)}
    slow, dear = {**figures((YARDSTICK, 40.0, 5.0)), **counts(3000)}, {**figures(PRODUCE), **counts(3100)}
    text, is_worse = slower.report(slow, before, is_busy=True)
    assert "8.0 x bare work" in text
    assert text.endswith("measure them again")
    assert not is_worse
    assert slower.report(slow, before, is_busy=False)[1]
    assert slower.report(dear, before, is_busy=True)[1]
    assert not slower.report(before, before, is_busy=False)[1]


def test_the_committed_figures_have_what_is_measured() -> None:
    assert YARDSTICK in slower.ratios(slower.committed())
    assert len(slower.ratios(slower.committed())) == 7
    assert len(slower.committed()["counts"]) == 9
