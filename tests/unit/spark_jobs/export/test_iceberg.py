"""An Iceberg table in a directory: what is told to Iceberg's library, and how often it is asked."""

import shutil
from pathlib import Path

import pytest

from logyard.spark_jobs.export.files import Output
from logyard.spark_jobs.export.manifest_store import ManifestStore
from logyard.spark_jobs.segments.splits import COLUMNS
from logyard.spark_jobs.tables.iceberg import IcebergTable
from logyard.spark_jobs.tables.publisher import TableFailed, of_table, said
from tests.support.export_runs import Flights, pairs
from tests.support.memory_iceberg import MemoryIceberg, Table

FORMAT = ("--format", "iceberg")


@pytest.fixture
def library() -> MemoryIceberg:
    return MemoryIceberg()


@pytest.fixture
def flights(tmp_path: Path, library: MemoryIceberg) -> Flights:
    return Flights(tmp_path, library)


def the_table(library: MemoryIceberg) -> Table:
    assert library.table is not None
    return library.table


def exported(flights: Flights, times: int, *words: str) -> None:
    for _ in range(times):
        flights.grow(pairs(4))
        flights.run(*FORMAT, *words)


def test_partition_values_are_as_they_were_before_a_path_escaped_them(library: MemoryIceberg, flights: Flights) -> None:
    flights.grow(pairs(8), step_ms=60_000)
    flights.run(*FORMAT, "--partition-by", "at=%Y/%m %H:%M=100%%,topic")
    found = {tuple(file.values) for file in the_table(library).files()}
    assert found == {(f"1970/01 00:0{minute}=100%", "t") for minute in range(8)}


def test_a_commit_asks_for_as_many_snapshots_however_long_the_history_is(
    library: MemoryIceberg, flights: Flights
) -> None:
    exported(flights, 3)
    before = library.looks
    exported(flights, 1)
    after_few = library.looks - before
    exported(flights, 12)
    before = library.looks
    exported(flights, 1)
    assert library.looks - before == after_few <= 3
    assert len(the_table(library).files()) == 17


def test_a_version_that_the_table_has_is_not_added_again_whoever_came_since(
    library: MemoryIceberg, flights: Flights
) -> None:
    exported(flights, 2)
    store = ManifestStore(str(flights.target))
    second = store.latest()
    for _ in range(5):
        the_table(library).add({"operation": "replace"})
    exported(flights, 1)
    the_table(library).add({"operation": "replace"})
    before = the_table(library).history()
    for version in (second, store.latest()):
        IcebergTable(library, Output(COLUMNS)).append_files(store, version, of_table(version.files, "data"))
    assert the_table(library).history() == before


def test_a_version_that_another_run_picked_first_is_there_once(
    library: MemoryIceberg, flights: Flights, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported(flights, 2)
    pick = Table.pick

    def late(table: Table, number: int) -> None:
        monkeypatch.undo()
        table.add({"operation": "replace"})
        pick(table, number)
        pick(table, number)

    monkeypatch.setattr(Table, "pick", late)
    exported(flights, 1)
    assert len(the_table(library).files()) == 3


def test_a_version_of_another_run_is_refused(library: MemoryIceberg, flights: Flights, tmp_path: Path) -> None:
    exported(flights, 1)
    shutil.copytree(flights.target / "_manifest", tmp_path / "copy")
    exported(flights, 3)
    shutil.rmtree(flights.target / "_manifest")
    shutil.copytree(tmp_path / "copy", flights.target / "_manifest")
    with pytest.raises(TableFailed, match="has a version 2 of run export-"):
        exported(flights, 1)


def test_an_error_that_says_nothing_is_told_by_its_name() -> None:
    assert said(AssertionError()) == "AssertionError"
    assert said(ValueError("first\nsecond")) == "first"
