"""Executors whose disk the driver does not see: nothing is committed, and one line says so."""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from logyard.broker.errors import CorruptData
from logyard.spark_jobs.export import options
from logyard.spark_jobs.export.manifest_store import ManifestStore
from logyard.spark_jobs.export.staged_files import NotShared
from tests.support.export_runs import Flights, pairs
from tests.support.here_workers import HereWorkers


class Elsewhere(HereWorkers):
    """Executors on another machine: what the job `what` writes does to the driver's disk what `spoil` does."""

    def __init__(self, target: Path, what: str, spoil: Callable[[list[Path]], None]) -> None:
        self._target, self._what, self._spoil = target, what, spoil

    def each(self, what: str, items: Sequence[Any], size: Callable[[Any], int], function: Callable[[Any], Any]) -> Any:
        answers = super().each(what, items, size, function)
        if what == self._what:
            self._spoil(sorted(self._target.glob("_staging/**/*.parquet")))
        return answers


def unseen(paths: list[Path]) -> None:
    for path in paths:
        path.unlink()


def one_unseen(paths: list[Path]) -> None:
    paths[-1].unlink()


def shorter(paths: list[Path]) -> None:
    os.truncate(paths[-1], paths[-1].stat().st_size - 1)


def another_footer(paths: list[Path]) -> None:
    """Of the right size, and no Parquet."""
    paths[-1].write_bytes(bytes(paths[-1].stat().st_size))


def other_rows(paths: list[Path]) -> None:
    """A sound file of the right size with fewer rows than were told."""
    size = paths[-1].stat().st_size
    pq.write_table(pq.ParquetFile(paths[-1]).read().slice(0, 0), paths[-1], compression="none")
    whole = paths[-1].read_bytes()
    assert len(whole) <= size
    paths[-1].write_bytes(whole[:4] + bytes(size - len(whole)) + whole[4:])


@pytest.mark.parametrize("spoil", [unseen, one_unseen, shorter, another_footer, other_rows])
@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((), "export"),
        (("--partition-by", "date"), "export"),
        (("--mode", "upsert"), "export"),
        (("--mode", "upsert"), "upsert"),
        (("--merge-files", "2"), "merge"),
    ],
)
def test_what_the_driver_does_not_see_is_not_committed(
    spoil: Callable[[list[Path]], None], words: tuple[str, ...], what: str, tmp_path: Path
) -> None:
    flights = Flights(tmp_path)
    flights.grow(pairs(20))
    first = words if what != "merge" else ()
    flights.run(*first)
    flights.grow(pairs(20))
    before = ManifestStore(str(flights.target)).latest()
    there = flights.rows()
    far = Flights(tmp_path, Elsewhere(flights.target, what, spoil))
    with pytest.raises(NotShared, match=rf"executors and driver do not share {flights.target}: nothing was committed"):
        far.run(*words)
    after = ManifestStore(str(flights.target)).latest()
    if what != "merge":  # its run has committed the rows before
        assert after == before
        assert flights.rows() == there
    flights.run(*words)
    assert flights.offsets() == ([*range(35, 40)] if "upsert" in words else list(range(40)))


def test_executors_that_do_not_share_a_disk_with_each_other(tmp_path: Path) -> None:
    """Rows that one executor scattered and another is to gather."""

    class Apart(HereWorkers):
        def each(self, what: str, items: Sequence[Any], size: Any, function: Any) -> Any:
            if what == "upsert":
                unseen(sorted(tmp_path.glob("export/_staging/**/*.parquet"))[1:])
            return super().each(what, items, size, function)

    flights = Flights(tmp_path, Apart())
    flights.grow(pairs(40))
    with pytest.raises(NotShared, match="executors do not share"):
        flights.run("--mode", "upsert")
    assert ManifestStore(str(flights.target)).latest().version == 0


def test_a_relative_destination_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors have working directories of their own."""
    flights = Flights(tmp_path)
    flights.grow(pairs(8))
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)

    class Moved(HereWorkers):
        def each(self, what: str, items: Sequence[Any], size: Any, function: Any) -> Any:
            monkeypatch.chdir(tmp_path)
            answers = super().each(what, items, size, function)
            monkeypatch.chdir(home)
            return answers

    flights = Flights(tmp_path, Moved())
    flights.grow(pairs(8))
    assert flights.run("--destination", "exports/flights")["rows"] == 8
    assert [p.name for p in home.rglob("data/**/*.parquet")] != []
    assert not (tmp_path / "exports").exists()
    assert options.directory_of("a:b") == str(home / "a:b")


def test_a_committed_file_that_is_nowhere_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody empties the staging directory between the commit and the moves."""
    flights = Flights(tmp_path)
    flights.grow(pairs(8))
    linked = ManifestStore.commit

    def emptied(store: ManifestStore, manifest: Any) -> None:
        linked(store, manifest)
        shutil.rmtree(store.staging(manifest.run_id))

    monkeypatch.setattr(ManifestStore, "commit", emptied)
    with pytest.raises(CorruptData, match="was committed by version 1, and is neither staged nor at its final path"):
        flights.run()


def test_rows_that_an_upsert_is_to_keep_are_counted(tmp_path: Path) -> None:
    flights = Flights(tmp_path)
    flights.grow(pairs(20))
    flights.run("--mode", "upsert")
    (path,) = flights.target.rglob("data/**/*.parquet")
    pq.write_table(pq.read_table(path).slice(0, 1), path)
    flights.grow(pairs(4))
    with pytest.raises(CorruptData, match="it has 1 rows, 5 were committed"):
        flights.run("--mode", "upsert")
