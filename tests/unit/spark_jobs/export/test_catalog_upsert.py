"""The latest row of each key in a table of an Iceberg catalog: each version is one commit that replaces files."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyiceberg")

from logyard.spark_jobs.export.errors import ExportRefused
from logyard.spark_jobs.export.manifest_store import Fenced
from logyard.spark_jobs.tables import catalog_commits
from logyard.spark_jobs.tables.catalog import CatalogFailed
from logyard.spark_jobs.tables.publisher import TableFailed
from tests.support import faulty_catalog
from tests.support.faulty_catalog import Died
from tests.support.lakes import Lake
from tests.support.lengths import some

FIRST = [(b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"a", b"2"), (b"b", None)]
SECOND = [(b"c", None), (b"d", b"1"), (b"a", b"3"), (b"b", b"9"), (b"b", b"4")]
AFTER_FIRST = {b"a": b"2", b"c": b"1"}
AFTER_SECOND = {b"a": b"3", b"b": b"4", b"d": b"1"}


class Keyed(Lake):
    """An upsert of a log into a table."""

    def run(self, *words: str) -> dict[str, Any]:
        return super().run("--mode", "upsert", *words)

    def values(self) -> dict[bytes, bytes]:
        rows = self.rows()
        found = {row["key"]: row["value"] for row in rows}
        assert len(found) == len(rows), "a key has two rows"
        return found


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keyed:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    faulty_catalog.quiet()
    made = Keyed(tmp_path)
    made.flights.grow(FIRST)
    return made


def test_the_table_has_the_latest_row_of_each_key(lake: Keyed) -> None:
    assert lake.run()["rows"] == 5
    assert lake.values() == AFTER_FIRST
    lake.flights.grow(SECOND)
    lake.run()
    assert lake.values() == AFTER_SECOND
    lake.run()
    operations = [str(snapshot.summary.operation.value) for snapshot in lake.table().snapshots()]
    assert operations == ["append", "overwrite"]
    totals = lake.table().current_snapshot().summary
    assert (totals["total-records"], totals["total-data-files"]) == ("3", "1")


def test_earlier_states_of_the_table_can_be_read(lake: Keyed) -> None:
    lake.run()
    lake.flights.grow(SECOND)
    lake.run()
    first = lake.table().snapshots()[0].snapshot_id
    rows = lake.table().scan(snapshot_id=first).to_arrow().to_pylist()
    assert {row["key"]: row["value"] for row in rows} == AFTER_FIRST


def test_a_table_may_become_empty_and_fill_again(lake: Keyed) -> None:
    lake.run()
    lake.flights.grow([(b"a", None), (b"c", None)])
    lake.run()
    assert lake.values() == {}
    lake.flights.grow([(b"z", b"1")])
    lake.run()
    assert lake.values() == {b"z": b"1"}


def test_schemas_grow(lake: Keyed, tmp_path: Path) -> None:
    schema = tmp_path / "value.ddl"
    words = ("--value-format", "json", "--value-schema", str(schema))
    schema.write_text("id BIGINT")
    lake.flights.grow([(b"j", b'{"id": 1}'), (b"k", b'{"id": 2}')])
    lake.run(*words)
    schema.write_text("id BIGINT, gate STRUCT<name: STRING>")
    lake.flights.grow([(b"k", b'{"id": 3, "gate": {"name": "x"}}')])
    lake.run(*words)
    values = {row["key"]: row["value"] for row in lake.rows()}
    assert values == {b"j": {"id": 1, "gate": None}, b"k": {"id": 3, "gate": {"name": "x"}}}


def test_manifests_do_not_pile_up(lake: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_commits, "MANIFESTS_TOGETHER", 3)
    for n in range(8):
        lake.flights.grow([(b"a", b"%d" % n), (b"k%d" % n, b"1")])
        lake.run()
    assert len(lake.values()) == 10
    table = lake.table()
    assert len(table.current_snapshot().manifests(table.io)) <= 3


def test_partition_columns_are_refused(lake: Keyed) -> None:
    with pytest.raises(ExportRefused, match="leave --partition-by out"):
        lake.run("--partition-by", "date")


# --- other programs


def test_rows_that_another_program_rewrote_are_not_written_twice(lake: Keyed) -> None:
    lake.run()
    table = lake.table()
    table.overwrite(table.scan().to_arrow())
    lake.flights.grow(SECOND)
    with pytest.raises(TableFailed, match=r"version 2 replaces files of table lake.t, and another program removed"):
        lake.run()
    table = lake.table()
    ours = next(s for s in table.snapshots() if s.summary["logyard.version"] == "1")
    table.manage_snapshots().rollback_to_snapshot(ours.snapshot_id).commit()
    lake.run()
    assert lake.values() == AFTER_SECOND


def test_rows_that_another_program_deletes_are_not_brought_back(lake: Keyed) -> None:
    lake.run()
    lake.table().delete("offset = 3")
    lake.flights.grow(SECOND)
    with pytest.raises(TableFailed, match="the rows are the export's alone"):
        lake.run()
    assert {row["key"] for row in lake.rows()} == {b"c"}


def test_rows_of_others_stay(lake: Keyed) -> None:
    lake.run()
    table = lake.table()
    theirs = table.scan().to_arrow().slice(0, 1)
    theirs = theirs.set_column(theirs.column_names.index("key"), "key", pa.array([b"theirs"]))
    table.append(theirs)
    lake.flights.grow(SECOND)
    lake.run()
    assert lake.values() == {**AFTER_SECOND, b"theirs": b"1"}


# --- whoever dies, is not answered, or comes first

FAULTS = [faulty_catalog.die_before, faulty_catalog.die_after, faulty_catalog.lose_answer, faulty_catalog.never_arrive]


def requests_of(lake: Keyed) -> int:
    faulty_catalog.at(-1, faulty_catalog.die_before)
    lake.run()
    count = faulty_catalog.counted()
    assert lake.values() == AFTER_SECOND
    return count


@pytest.mark.slow
@pytest.mark.parametrize("how", FAULTS, ids=lambda how: how.__name__)
def test_killed_or_unanswered_at_any_request_and_file(lake: Keyed, how: Callable[[], None]) -> None:
    lake.run()
    lake.flights.grow(SECOND)
    back = lake.kept_aside()
    count = requests_of(lake)
    assert count >= 8
    for request in some(range(count), FAULTS.index(how), len(FAULTS)):
        back()
        faulty_catalog.at(request, how)
        try:
            lake.run()
        except Died:
            assert how in FAULTS[:2]
        except CatalogFailed:
            # The first look at the table is not repeated.
            assert how in FAULTS[2:]
        assert lake.values() in (AFTER_FIRST, AFTER_SECOND), request
        lake.run()
        assert lake.values() == AFTER_SECOND, request
        told = [json.loads(s.summary["logyard.offsets"])["version"] for s in lake.table().snapshots()]
        assert told == [1, 2], request


@pytest.mark.slow
def test_overtaken_at_any_request_and_file_one_of_two_wins(lake: Keyed) -> None:
    lake.run()
    lake.flights.grow(SECOND)
    back = lake.kept_aside()
    count = requests_of(lake)

    def other() -> None:
        faulty_catalog.quiet()
        lake.run()

    for request in some(range(count)):
        back()
        faulty_catalog.at(request, other)
        with suppress(Fenced, ExportRefused):
            lake.run()
        assert lake.values() == AFTER_SECOND, request
        assert len(list(lake.table().snapshots())) == 2, request
