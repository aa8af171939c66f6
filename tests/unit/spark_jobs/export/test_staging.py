"""Which staging directories of other runs may go: only those of the dead."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logyard.spark_jobs.export import staging
from logyard.spark_jobs.export.manifest_store import ManifestStore
from logyard.spark_jobs.export.places.folder import Folder
from logyard.spark_jobs.export.staging import MARK, Alive
from tests.support.export_runs import Flights, pairs
from tests.support.here_workers import HereWorkers

DAYS = 30 * 86_400


def aged(path: Path, by_s: float = DAYS) -> None:
    """Let everything under a path be so much older."""
    for one in [path, *path.rglob("*")]:
        stat = one.stat()
        os.utime(one, (stat.st_atime - by_s, stat.st_mtime - by_s))


def of_run(store: ManifestStore, name: str = "other") -> Path:
    path = Path(store.staging(name)) / "data" / "t" / "0"
    path.mkdir(parents=True)
    (path / "a.parquet").write_bytes(b"rows")
    return Path(store.staging(name))


@pytest.fixture
def store(tmp_path: Path) -> ManifestStore:
    return ManifestStore(str(tmp_path))


def test_a_living_runs_files_stay_however_old_its_directory_is(store: ManifestStore) -> None:
    """A directory's time does not change while files are added below it; nor need a run write anything for a day."""
    with Alive(str(of_run(store))):
        aged(Path(store.staging("other")))
        store.drop_stale_staging()
        assert Path(store.staging("other"), "data/t/0/a.parquet").exists()
    store.drop_stale_staging()
    assert not Path(store.staging("other")).exists(), "and once it is dead they go"


def test_drafts_of_the_dead_go_and_those_of_the_living_stay(
    store: ManifestStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is killed while it writes a version, a checkpoint, or asks for the time, leaves a file that nobody names."""
    (tmp_path / "_manifest").mkdir()
    of_run(store)
    drafts = [
        tmp_path / "_manifest" / ".0123456789abcdef0123456789abcdef.tmp",
        tmp_path / "_manifest" / "checkpoint-0000000050.json.0123456789abcdef0123456789abcdef.tmp",
        tmp_path / "_staging" / ".now.0123456789abcdef0123456789abcdef",
    ]
    others = [tmp_path / "_manifest" / name for name in ("trimmed", "mine.tmp")]
    for path in (*drafts, *others):
        path.write_text("{}")
    store.drop_stale_staging()
    assert all(path.exists() for path in drafts)
    monkeypatch.setattr(staging, "STALE_S", 0.0)
    time.sleep(0.05)
    store.drop_stale_staging()
    assert [path.name for path in drafts if path.exists()] == []
    assert all(path.exists() for path in others)


def test_a_lock_is_one_witness_and_the_beats_another(store: ManifestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks of another host may not be seen here."""
    monkeypatch.setattr(staging, "BEAT_S", 0.01)
    monkeypatch.setattr(staging, "is_locked", lambda _path: False)
    with Alive(str(of_run(store))):
        aged(Path(store.staging("other")))
        deadline = time.monotonic() + 20
        while time.time() - (Path(store.staging("other")) / MARK).stat().st_mtime > 3600:
            assert time.monotonic() < deadline, "the mark is never touched"
            time.sleep(0.01)
        store.drop_stale_staging()
        assert Path(store.staging("other"), "data/t/0/a.parquet").exists()


def test_beats_go_on_after_one_that_failed(store: ManifestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "BEAT_S", 0.01)
    beats: list[int] = []
    enough = threading.Event()

    def failing(*_: Any, **__: Any) -> None:
        beats.append(1)
        if len(beats) > 3:
            enough.set()
        raise OSError("the disk is away")

    with monkeypatch.context() as patched, Alive(str(of_run(store))):
        patched.setattr(os, "utime", failing)
        assert enough.wait(20)


@pytest.mark.parametrize("ahead_s", [-DAYS, DAYS])
def test_this_hosts_clock_is_not_asked(ahead_s: float, store: ManifestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files' times are the file server's, and this host's clock may be a month off."""
    fresh, old = of_run(store, "fresh"), of_run(store, "old")
    aged(old)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + ahead_s)
    store.drop_stale_staging()
    assert (fresh.exists(), old.exists()) == (True, False)


def test_a_run_without_a_mark_is_judged_by_its_newest_file(store: ManifestStore) -> None:
    """Of an earlier version, which leaves no mark."""
    found = of_run(store)
    (found / "data/t/1").mkdir()
    aged(found)
    (found / "data/t/1/b.parquet").write_bytes(b"rows")
    aged(found / "data/t/1", 0)
    os.utime(found / "data/t/1", (1, 1))
    store.drop_stale_staging()
    assert found.exists()
    aged(found)
    store.drop_stale_staging()
    assert not found.exists()


def test_what_the_newest_version_is_made_of_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flights = Flights(tmp_path)
    flights.grow(pairs(8))

    def full(*_: Any) -> None:
        raise OSError("full")

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "move", full)
        with pytest.raises(OSError, match="full"):
            flights.run()
    store = ManifestStore(str(flights.target))
    aged(flights.target / "_staging")
    store.drop_stale_staging()
    flights.run()
    assert flights.offsets() == list(range(8))


def test_a_long_run_is_not_robbed_by_the_next(tmp_path: Path) -> None:
    """Two days pass between the first file of a run and its commit; another run starts meanwhile."""
    other = Flights(tmp_path)

    class Long(HereWorkers):
        def each(self, what: str, items: Any, size: Any, function: Any) -> Any:
            answers = super().each(what, items, size, function)
            aged(tmp_path / "export" / "_staging", 2 * 86_400)
            ManifestStore(str(tmp_path / "export")).drop_stale_staging()
            return answers

    flights = Flights(tmp_path, Long())
    flights.grow(pairs(20))
    assert flights.run()["rows"] == 20
    assert other.offsets() == list(range(20))


@pytest.fixture
def another(store: ManifestStore) -> Iterator["subprocess.Popen[str]"]:
    """A process that has a run alive."""
    code = "import sys, time; from logyard.spark_jobs.export.staging import Alive\n"
    code += "with Alive(sys.argv[1]): print('alive', flush=True); time.sleep(600)"
    path = str(of_run(store))
    with subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "alive\n"
        yield process
        process.kill()


def test_a_killed_process_leaves_no_lock(store: ManifestStore, another: "subprocess.Popen[str]") -> None:
    aged(Path(store.staging("other")))
    another.send_signal(signal.SIGSTOP)
    store.drop_stale_staging()
    assert Path(store.staging("other")).exists(), "a process that stands still is not dead"
    another.send_signal(signal.SIGKILL)
    another.wait(30)
    store.drop_stale_staging()
    assert not Path(store.staging("other")).exists()
