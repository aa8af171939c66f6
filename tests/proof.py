"""`make proof`: every suite, one after the other, resumable, its outcome in build/proof.json.

A suite that passed at this very commit (with a clean work tree) is not run again; `--again` runs all,
`--suite NAME` (repeatable) only those whose names begin so.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
OUTCOMES = BUILD / "proof.json"
PYTEST = (sys.executable, "-m", "pytest", "-q")
TWO = ("-n", "2", "--dist", "worksteal")

# Each suite is a command; pytest's get their counts from its JUnit report.
# None takes much over ten minutes on two cores: what is long goes by files, and the thousand seeds in pieces.
SEEDS, PIECE = 1000, 40
SEED = "tests/simulation/test_seeds.py::test_seed"


def by_file(folder: str) -> dict[str, tuple[str, ...]]:
    """A suite for each file of tests below a folder."""
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("test_*.py"))
    return {file: (*PYTEST, file) for file in files}


SUITES: dict[str, tuple[str, ...]] = {
    "format": (sys.executable, "-m", "ruff", "format", "--check", "."),
    "lint": (sys.executable, "-m", "ruff", "check", "."),
    "types": (sys.executable, "-m", "mypy"),
    "unit": (*PYTEST, *TWO, "tests/unit", "tests/scenarios"),
    "properties": (*PYTEST, "tests/properties"),
    "architecture": (*PYTEST, "tests/architecture"),
    "simulation": (*PYTEST, *TWO, "tests/simulation", "--deselect", SEED),
    **{
        f"seeds {first}-{first + PIECE - 1}": (*PYTEST, *TWO, SEED, "--seeds", f"{first}-{first + PIECE - 1}")
        for first in range(1, SEEDS, PIECE)
    },
    **by_file("tests/integration"),
    **by_file("tests/matrix"),
    **by_file("tests/compose"),
    "librdkafka": (sys.executable, "-P", "tests/librdkafka/run.py"),
    **by_file("tests/reference"),
    "demo": (sys.executable, "-m", "logyard.cli.main", "demo"),
}


@dataclass(slots=True)
class Outcome:
    """How one suite ended. `skipped` has the reason of each skipped test."""

    suite: str
    commit: str
    ok: bool
    seconds: float
    passed: int = 0
    failed: int = 0
    skipped: list[str] = field(default_factory=list)


def commit() -> str:
    """The commit that is proved, with a mark where the work tree differs from it."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    dirty = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return head.strip() + ("+changes" if dirty.strip() else "")


def run(suite: str, at: str) -> Outcome:
    command = list(SUITES[suite])
    report = BUILD / f"{suite.replace('/', '.')}.xml"
    if command[: len(PYTEST)] == list(PYTEST):
        command.append(f"--junitxml={report}")
    begun = time.monotonic()
    # Property tests draw new examples here; everywhere else the same code gets the same ones.
    ended = subprocess.run(command, cwd=ROOT, env={**os.environ, "LOGYARD_EXPLORE": "1"}, check=False)
    outcome = Outcome(suite, at, ended.returncode == 0, round(time.monotonic() - begun, 1))
    if command[-1].startswith("--junitxml") and report.exists():
        _count(report, outcome)
    else:
        outcome.passed, outcome.failed = int(outcome.ok), int(not outcome.ok)
    return outcome


def _count(report: Path, outcome: Outcome) -> None:
    for case in ElementTree.parse(report).iter("testcase"):
        skipped = case.find("skipped")
        if skipped is not None:
            outcome.skipped.append(f"{case.get('classname')}.{case.get('name')}: {skipped.get('message')}")
        elif case.find("failure") is not None or case.find("error") is not None:
            outcome.failed += 1
        else:
            outcome.passed += 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", action="append", help="only those whose names begin so; repeatable")
    parser.add_argument("--again", action="store_true", help="also what passed at this commit already")
    options = parser.parse_args(arguments)
    BUILD.mkdir(exist_ok=True)
    known = json.loads(OUTCOMES.read_text()) if OUTCOMES.exists() else {}
    at = commit()
    wanted = [suite for suite in SUITES if suite.startswith(tuple(options.suite or [""]))]
    if not wanted:
        parser.error(f"there is no such suite; there are {', '.join(SUITES)}")
    for suite in wanted:
        before = known.get(suite)
        if before and before["ok"] and before["commit"] == at and "+" not in at and not options.again:
            print(f"proof: {suite}: passed at this commit already")
            continue
        print(f"proof: {suite}", flush=True)
        known[suite] = asdict(run(suite, at))
        OUTCOMES.write_text(json.dumps(known, indent=2) + "\n")
    for suite in wanted:
        o = known[suite]
        verdict = "ok" if o["ok"] else "FAILED"
        counts = f"{o['passed']:6} passed {o['failed']:4} failed {len(o['skipped']):4} skipped"
        print(f"{suite:60}{verdict:8}{counts}{o['seconds']:9.1f} s")
    return 0 if all(known[suite]["ok"] for suite in wanted) else 1


if __name__ == "__main__":
    sys.exit(main())
