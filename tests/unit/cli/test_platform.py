"""`logyard down`, over processes that stand for parts of a platform."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from logyard.cli.main import main
from logyard.local import interrupts
from logyard.local.processes import Entry, Processes

SLEEPER = ["sleep", "300"]


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Entry]]:
    """A broker of either platform; what is known of the first one's Airflow cannot be read."""
    monkeypatch.setattr(interrupts, "raise_once", lambda: None)
    homes = [tmp_path / name / "cluster" for name in ("up", "demo")]
    (tmp_path / "up" / "airflow").mkdir(parents=True)
    (tmp_path / "up" / "airflow" / "processes.json").write_text("{")
    for home in homes:
        home.mkdir(parents=True)
    yield [Processes(home).start("broker-0", SLEEPER) for home in homes]
    for home in homes:
        Processes(home).stop("broker-0", grace_s=1)


def test_what_does_not_end_keeps_nothing_else_running(
    running: list[Entry], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["down", "--dir", str(tmp_path)]) == 1
    assert "airflow/processes.json cannot be read" in capsys.readouterr().err
    assert [entry.alive for entry in running] == [False, False]
