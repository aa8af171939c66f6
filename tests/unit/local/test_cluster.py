"""What a start that fails ends: what it has started itself, and nothing else."""

import threading
import time
from pathlib import Path

import pytest

from logyard.local import cluster, files
from logyard.local.cluster import LocalCluster
from logyard.local.errors import LocalError
from logyard.local.layout import Settings


def test_a_start_that_waited_for_another_ends_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java(_directory: Path) -> None:
        raise LocalError("no Java")

    monkeypatch.setattr(cluster, "find_java", no_java)
    late, said = LocalCluster(tmp_path), []

    def start() -> None:
        try:
            late.start(Settings(1))
        except LocalError as error:
            said.append(str(error))

    other = LocalCluster(tmp_path).processes
    waiting = threading.Thread(target=start)
    try:
        with files.locked(late.layout.lock):  # as the other command holds it while it starts its brokers
            waiting.start()
            time.sleep(0.3)
            entry = other.start("broker-0", ["sleep", "300"])
        waiting.join(60)
        assert said == ["no Java"]
        assert entry.alive
    finally:
        other.stop("broker-0", grace_s=1)
