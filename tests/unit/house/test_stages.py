"""`make test` (tests/stages.py): each stage is a target, what takes too long is told, and a failure ends it."""

import re
from pathlib import Path

import pytest

from tests import stages

ROOT = Path(__file__).resolve().parents[3]
LIMIT_MIN = 25


def test_each_stage_is_a_target_and_together_they_keep_the_promise() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(rf"^test: setup .*under {LIMIT_MIN} minutes", makefile, re.MULTILINE)
    for stage in stages.STAGES:
        assert re.search(rf"^{stage}: setup", makefile, re.MULTILINE)
    assert sum(stages.STAGES.values()) <= LIMIT_MIN


def test_what_took_too_long_is_told() -> None:
    assert stages.line("test-unit", 419) == "  test-unit            7.0 of 7 minutes"
    assert "TOO LONG" in stages.line("test-unit", 430)


def test_the_first_failure_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = tmp_path / "ran"
    make = tmp_path / "make"
    make.write_text(f'#!/bin/sh\necho "$2" >> {ran}\ntest "$2" != test-simulation\n')
    make.chmod(0o755)
    monkeypatch.setenv("MAKE", str(make))
    assert stages.main() == 1
    assert ran.read_text().split() == ["test-unit", "test-simulation"]
    first, second = capsys.readouterr().out.splitlines()
    assert "FAILED" in second
    assert "FAILED" not in first
