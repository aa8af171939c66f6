"""Transactions whose coordinator loses its log directory: a full disk, and one that fails."""

import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from logyard.broker.metadata.coordinators import partition_for
from tests.integration.test_transactions import TRANSACTIONS, started
from tests.support.copying import BATCH, Strike, copy_while_they_are_killed
from tests.support.needed import lacks
from tests.support.real_cluster import RealCluster, eventually
from tests.support.transactional import Copier

pytestmark = pytest.mark.timeout(600)

STATES = "__transaction_state"
SETTINGS = TRANSACTIONS | {"log.dirs": "one,two", "log.segment.bytes": "1000000", "log.index.size.max.bytes": "100000"}
PLACES = [f"broker-{broker}/{name}" for broker in range(3) for name in ("one", "two")]
SMALL = "size=48m"


@pytest.fixture
def small_disks(tmp_path: Path) -> Iterator[RealCluster]:
    """Three brokers; each of their two directories is a file system of its own."""
    home = tmp_path / "cluster"
    mounted: list[Path] = []
    try:
        for place in (home / name for name in PLACES):
            place.mkdir(parents=True)
            command = ["mount", "-t", "tmpfs", "-o", SMALL, "none", str(place)]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                lacks("no file system may be mounted here")
            mounted.append(place)
        yield from started(home, SETTINGS)
    finally:
        for place in mounted:
            subprocess.run(["umount", "-l", str(place)], check=False)


def home_of_states(yard: RealCluster, broker: int) -> Path:
    """The directory where that broker keeps the partition of the copier's transactions."""
    count = len(yard.describe(STATES))
    return yard.replica_dirs(STATES, partition_for("copier-source", count))[broker].parent


def is_told(yard: RealCluster, broker: int, what: str) -> bool:
    return what in (yard.directory / "logs" / f"broker-{broker}.log").read_text()


@contextmanager
def full(yard: RealCluster, broker: int) -> Iterator[None]:
    """Not a byte is left where it keeps the transactions; it is started again when there is room."""
    ballast = home_of_states(yard, broker) / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    assert os.statvfs(ballast).f_bavail == 0
    eventually(lambda: is_told(yard, broker, "No space left"), "it has met the end of its disk", 60)
    yield
    ballast.unlink()
    yard.cluster.stop_broker(broker, signal.SIGTERM)
    yard.cluster.start_broker(broker)


@contextmanager
def failing(yard: RealCluster, broker: int) -> Iterator[None]:
    """No file may grow any more: each write fails, and the broker ends itself with its last directory."""
    (pid,) = (entry["pid"] for entry in yard.description["brokers"] if entry["id"] == broker)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, 1))
    eventually(lambda: has_ended(pid), "it stops", 60)
    yield
    yard.cluster.stop_broker(broker, signal.SIGKILL)
    yard.cluster.start_broker(broker)


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("strike", [full, pytest.param(failing, marks=pytest.mark.long)])
def test_a_copy_is_exactly_once_whoever_loses_a_disk(small_disks: RealCluster, strike: Strike) -> None:
    copier = Copier(small_disks.bootstrap, "source", "target", batch=BATCH)
    copy_while_they_are_killed(small_disks, copier, strike, count=20_000)
