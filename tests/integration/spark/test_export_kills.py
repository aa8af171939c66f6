"""An export killed with SIGKILL at every place that matters, and two at once: afterwards every offset is there once."""

import json
import os
import subprocess
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from logyard.spark_jobs.export.manifest_store import ManifestStore
from tests.support import dying_export
from tests.support.batches import Rec, batch
from tests.support.segment_files import write_partition

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]

RECORDS = 6_000
TOPIC = "flights"


def start(place: str, log_dir: Path, target: Path) -> "subprocess.Popen[str]":
    return dying_export.start(place, target, ["--log-dir", str(log_dir), "--split-mib", "1"])


def offsets(target: Path) -> list[tuple[int, int]]:
    if not (target / "data").exists():
        return []
    rows = pq.read_table(target / "data", columns=["partition", "offset"]).to_pylist()
    return sorted((row["partition"], row["offset"]) for row in rows)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    for partition in (0, 1):
        batches = [
            batch([Rec(at + i, b"key%d" % i, os.urandom(1000)) for i in range(20)]) for at in range(0, RECORDS, 20)
        ]
        write_partition(tmp_path / "log", f"{TOPIC}-{partition}", [batches[:100], batches[100:200], batches[200:]])
    return tmp_path / "log"


EVERYTHING = [(partition, offset) for partition in (0, 1) for offset in range(RECORDS)]


@pytest.mark.parametrize(
    ("place", "committed"),
    [
        ("before staging", False),
        ("mid write", False),
        ("before the manifest", False),
        ("after the manifest's link", True),
        ("mid moves", True),
    ],
)
def test_killed_and_run_again(place: str, committed: bool, log_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "export"
    dying = start(place, log_dir, target)
    out, err = dying.communicate(timeout=300)
    assert dying.returncode == -9, f"{out[-1000:]}\n{err[-3000:]}"
    assert bool(list(target.glob("_manifest/*.json"))) is committed
    before = offsets(target)
    assert len(before) == len(set(before))
    assert committed or not before

    again = start("nowhere", log_dir, target)
    out, err = again.communicate(timeout=300)
    assert again.returncode == 0, err[-3000:]
    summary = json.loads(out.strip().splitlines()[-1])
    assert summary["rows"] == (0 if committed else len(EVERYTHING))
    assert offsets(target) == EVERYTHING


def test_killed_in_its_third_piece_a_run_has_kept_two(log_dir: Path, tmp_path: Path) -> None:
    """As the time-out of a DAG run ends an export of a very large topic."""
    target = tmp_path / "export"
    words = ["--log-dir", str(log_dir), "--split-mib", "1", "--commit-mib", "3"]
    dying = dying_export.start("before the third manifest", target, words)
    out, err = dying.communicate(timeout=300)
    assert dying.returncode == -9, f"{out[-1000:]}\n{err[-3000:]}"
    assert "export: version 2 is committed; " in err
    before = offsets(target)
    assert len(before) == len(set(before)) > 0
    (topic,) = ManifestStore(str(target)).latest().topics.values()
    assert before == [(p, offset) for p in (0, 1) for offset in range(topic.next_offsets[p])]
    assert all(0 < topic.next_offsets[p] < RECORDS for p in (0, 1)), "of each partition about as much"

    again = start("nowhere", log_dir, target)
    out, err = again.communicate(timeout=300)
    assert again.returncode == 0, err[-3000:]
    assert json.loads(out.strip().splitlines()[-1])["rows"] == len(EVERYTHING) - len(before)
    assert offsets(target) == EVERYTHING


def test_of_two_at_once_one_wins_and_the_other_fails_clearly(log_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "export"
    both = [start("race", log_dir, target) for _ in range(2)]
    said = [one.communicate(timeout=300) for one in both]
    assert sorted(one.returncode for one in both) == [0, 1], said[0][1][-2000:] + said[1][1][-2000:]
    loser = next(err for one, (_, err) in zip(both, said, strict=True) if one.returncode == 1)
    assert (
        loser.strip()
        .splitlines()[-1]
        .endswith("another export committed version 1 meanwhile; of this run only what it committed before was kept")
    )
    assert offsets(target) == EVERYTHING
    deadline = time.monotonic() + 10
    while any(target.glob("_staging/*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not list(target.glob("_staging/*"))
