"""`logyard cluster`, as far as it needs neither ZooKeeper nor brokers."""

from pathlib import Path

import pytest

from logyard.cli.main import main
from logyard.local import interrupts
from logyard.local.layout import Layout, Settings
from logyard.local.processes import Processes


def test_a_start_in_the_foreground_that_is_refused_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cluster runs in the background already, and is secured: what was typed was a mistake."""
    monkeypatch.setattr(interrupts, "raise_once", lambda: None)
    Layout(tmp_path).keep_settings(Settings(1, secure=True))
    processes = Processes(tmp_path)
    entry = processes.start("broker-0", ["sleep", "300"])
    try:
        assert main(["cluster", "start", "--dir", str(tmp_path), "--foreground"]) == 1
        assert "is secured: start it with --secure" in capsys.readouterr().err
        assert entry.alive
    finally:
        processes.stop("broker-0", grace_s=1)
