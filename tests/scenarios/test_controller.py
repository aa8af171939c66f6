"""Transcripts of the controller: each file is commands (`> …`) and what followed from them.

Refresh them after a change that is meant: LOGYARD_REWRITE=1 pytest tests/scenarios/test_controller.py
"""

import os
from pathlib import Path

import pytest

from tests.support.controller_transcript import Transcript

SCENARIOS = sorted((Path(__file__).parent / "controller").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
async def test_scenario(path: Path) -> None:
    before = path.read_text(encoding="utf-8")
    transcript = Transcript()
    after: list[str] = []
    try:
        for line in before.splitlines():
            if line.startswith("#"):
                after.append(line)
            elif line.startswith("> "):
                after += ["", line, *(await transcript.play(line[2:]))]
    finally:
        await transcript.world.stop()
    found = "\n".join(after) + "\n"
    if os.environ.get("LOGYARD_REWRITE"):
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 8
