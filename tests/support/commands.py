"""The `logyard` command in this process, against a cluster that runs."""

from collections.abc import Callable

import pytest

from logyard.cli import main as entry
from logyard.local import interrupts
from tests.support.real_cluster import RealCluster

Run = Callable[..., tuple[int, str, str]]
"""(words…, zookeeper=False) → (exit status, standard output, standard error)."""


def runner(cluster: RealCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return what runs a command on the cluster, by requests or by ZooKeeper."""
    monkeypatch.setattr(interrupts, "raise_once", lambda: None)
    monkeypatch.setenv("XDG_STATE_HOME", str(cluster.directory / "state"))

    def command(*words: str, zookeeper: bool = False) -> tuple[int, str, str]:
        where = ["--bootstrap-server", cluster.bootstrap]
        if zookeeper:
            where = ["--zookeeper", str(cluster.description["zookeeper"])]
        status = entry.main([*words, *where])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return command
