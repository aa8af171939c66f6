"""`logyard cluster` and `logyard topics` as a user types them, with real brokers."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

LOGYARD = [sys.executable, "-m", "logyard.cli.main"]


def logyard(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LOGYARD, *arguments], capture_output=True, text=True, timeout=180, check=False)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    found = str(tmp_path_factory.mktemp("cluster") / "yard")
    started = logyard("cluster", "start", "--brokers", "2", "--dir", found, "--config", "log.segment.bytes=1000000")
    assert started.returncode == 0, started.stderr
    yield found
    stopped = logyard("cluster", "stop", "--dir", found)
    assert (stopped.returncode, stopped.stdout) == (0, "stopped\n")


def described(directory: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((Path(directory) / "cluster.json").read_text())
    return found


def test_a_topic_by_the_brokers_and_by_zookeeper(directory: str) -> None:
    brokers = ["--bootstrap-server", str(described(directory)["bootstrap"])]
    ensemble = ["--zookeeper", str(described(directory)["zookeeper"])]
    wanted = ["--partitions", "2", "--replication-factor", "2", "--config", "cleanup.policy=compact"]
    assert logyard("topics", "create", *brokers, "--topic", "one", *wanted).stdout == "Created topic one.\n"
    assert logyard("topics", "create", *ensemble, "--topic", "two", *wanted).stdout == "Created topic two.\n"
    deadline = time.monotonic() + 30
    while logyard("topics", "describe", *brokers, "--unavailable-partitions").stdout and time.monotonic() < deadline:
        time.sleep(0.2)
    assert logyard("topics", "list", *brokers, "--exclude-internal").stdout == "one\ntwo\n"
    for topic in ("one", "two"):
        by_brokers = logyard("topics", "describe", *brokers, "--topic", topic).stdout
        by_ensemble = logyard("topics", "describe", *ensemble, "--topic", topic).stdout
        # A topic's own settings; the brokers name those of their server.properties as well, as Kafka's do.
        assert "\tPartitionCount: 2\tReplicationFactor: 2\tConfigs: " in by_brokers
        assert "cleanup.policy=compact" in by_brokers
        assert by_brokers.splitlines()[1:] == by_ensemble.splitlines()[1:]
    refused = logyard("topics", "create", *brokers, "--topic", "one", *wanted)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "already exists" in refused.stderr
    assert logyard("topics", "delete", *brokers, "--topic", "one,two").returncode == 0


def test_a_killed_broker_is_seen_and_started_again(directory: str) -> None:
    first = described(directory)["brokers"]
    assert isinstance(first, list)
    os.kill(first[1]["pid"], signal.SIGKILL)
    status = logyard("cluster", "status", "--dir", directory)
    assert status.returncode == 1
    assert "not every broker serves" in status.stderr
    assert logyard("cluster", "start-broker", "--dir", directory, "--id", "1").returncode == 0
    assert logyard("cluster", "status", "--dir", directory).returncode == 0
    again = described(directory)["brokers"]
    assert isinstance(again, list)
    assert (again[1]["port"], again[0]) == (first[1]["port"], first[0])
    assert again[1]["pid"] != first[1]["pid"]


def test_a_setting_that_is_wrong_is_said_in_one_line(tmp_path: Path) -> None:
    started = logyard("cluster", "start", "--brokers", "1", "--dir", str(tmp_path), "--config", "num.partitions=many")
    assert started.returncode == 1
    assert "num.partitions" in started.stderr.splitlines()[-1]
    assert json.loads((tmp_path / "processes.json").read_text()) == {}


def test_in_the_foreground_all_ends_with_the_command(tmp_path: Path) -> None:
    command = [*LOGYARD, "cluster", "start", "--brokers", "1", "--dir", str(tmp_path), "--foreground"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert [child.stdout.readline().split()[0] for _ in range(3)] == ["zookeeper", "bootstrap", "described"]
    pids = [entry["pid"] for entry in json.loads((tmp_path / "processes.json").read_text()).values()]
    child.send_signal(signal.SIGTERM)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 128 + signal.SIGTERM
    assert "interrupted by SIGTERM" in said
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not (tmp_path / "cluster.json").exists()
