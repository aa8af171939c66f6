"""Commands run in this process against the twins: a cluster and a ZooKeeper in memory."""

from collections.abc import Callable
from pathlib import Path

import pytest

from logyard.cli import main as entry
from logyard.cli import options
from logyard.local import interrupts
from tests.support.memory_clients import MemoryConnector
from tests.support.memory_cluster import MemoryCluster
from tests.support.tree_znodes import TreeZnodes

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def yard(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    """Three brokers that --bootstrap-server reaches, whatever it says."""
    cluster = MemoryCluster({0: None, 1: None, 2: None})
    monkeypatch.setattr(options, "connector", MemoryConnector(cluster))
    return cluster


@pytest.fixture
def znodes(monkeypatch: pytest.MonkeyPatch) -> TreeZnodes:
    """What --zookeeper reaches, whatever it says."""
    tree = TreeZnodes()
    monkeypatch.setattr(options, "open_znodes", lambda connect, access: tree)
    return tree


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run `logyard` with these words; returns exit status, stdout, stderr."""
    monkeypatch.setattr(interrupts, "raise_once", lambda: None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def command(*words: str) -> tuple[int, str, str]:
        status = entry.main(words)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return command
