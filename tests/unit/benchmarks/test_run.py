"""`make bench` as a whole: a part that fails does not take the others with it, and the end says what was compared."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks import bench_broker, run, short, slower
from tests.benchmarks.harness import Row

ENDED = """
import sys, time
from tests.benchmarks import run

def waits(directory):
    print(directory, flush=True)
    time.sleep(600)

run.PARTS = {"page": lambda _: [], "size": waits}
run.end_when_told()
run.main(["--json", sys.argv[1]])
"""


@pytest.fixture(autouse=True)
def figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(slower, "COMMITTED", tmp_path / "figures.json")
    slower.keep({"broker": [{"what": slower.YARDSTICK, "value": 20.0, "unit": "µs", "ceiling": 5.0}]}, is_busy=False)
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    return tmp_path / "bench.json"


def broker(value: float) -> list[Row]:
    return [Row(slower.YARDSTICK, value, "µs", ceiling=5.0)]


def test_a_part_that_fails_is_named_and_the_others_are_kept(
    figures: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: Path) -> list[Row]:
        raise RuntimeError("no leader")

    monkeypatch.setattr(run, "PARTS", {"size": fails, "broker": lambda _: broker(20.0)})
    assert run.main(["--json", str(figures)]) == 1
    shown = capsys.readouterr()
    assert "RuntimeError: no leader" in shown.err
    assert shown.out.endswith("not measured, because they failed: size\n")
    assert list(json.loads(figures.read_text())) == ["broker"]


@pytest.mark.parametrize(
    ("value", "status", "says"),
    [
        (20.0, 0, "(Produce 279 B, 50 under way: 4.0 x, was 4.0 x); none is slower by more than a tenth"),
        (30.0, 1, "these are slower by more than a tenth:\n  Produce 279 B, 50 under way: 6.0 x bare work"),
    ],
)
def test_the_end_says_what_was_compared(
    value: float,
    status: int,
    says: str,
    figures: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(run, "PARTS", {"broker": lambda _: broker(value)})
    assert run.main(["--json", str(figures)]) == status
    out = capsys.readouterr().out
    assert "compared with figures.json: CPU of 1 requests, as multiples of the bare server's" in out
    assert says in out


def test_a_run_without_the_broker_says_that_nothing_is_compared(
    figures: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "PARTS", {"size": lambda _: [Row("Start", 1.0, "s")]})
    assert run.main(["--json", str(figures)]) == 0
    assert "nothing is compared" in capsys.readouterr().out


def test_a_short_run_makes_every_benchmark_small_and_is_never_kept(
    figures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, constants in short.SMALLER.items():
        for name in constants:
            monkeypatch.setattr(module, name, getattr(module, name))  # given back after the test
    given: list[dict[str, int]] = []

    def page(_: Path, **arguments: int) -> list[Row]:
        given.append(arguments)
        return []

    monkeypatch.setattr(run, "PARTS", {"page": page})
    rounds = bench_broker.ROUNDS
    assert run.main(["--short", "--json", str(figures)]) == 0
    assert given == [{"topics": 1000}]
    assert rounds > bench_broker.ROUNDS
    with pytest.raises(SystemExit):
        run.main(["--short", "--keep"])


def test_every_part_has_a_short_form() -> None:
    shortened = {module.__name__ for module in short.SMALLER}
    assert {measure.__module__ for measure in run.PARTS.values()} <= shortened


def test_a_run_that_is_told_to_end_cleans_up_and_has_written_what_it_measured(figures: Path) -> None:
    command = [sys.executable, "-c", ENDED, str(figures)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        directory = next(line.strip() for line in process.stdout if line.startswith("/"))
        assert Path(directory).is_dir()
        process.terminate()
    assert process.returncode == 143
    assert not Path(directory).exists()
    assert json.loads(figures.read_text()) == {"page": []}
