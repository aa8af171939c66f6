"""Maintenance of a table in an Iceberg catalog: no row comes twice or goes, whoever dies, is not answered, or writes
beside it; and what is deleted is needed by nobody."""

import argparse
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyiceberg")

from logyard.spark_jobs.errors import JobFailed
from logyard.spark_jobs.export.manifest_store import Fenced
from logyard.spark_jobs.maintenance import expiry, job
from logyard.spark_jobs.manifest import ManifestStore
from logyard.spark_jobs.tables.catalog import CatalogFailed
from logyard.spark_jobs.tables.catalog_history import History
from logyard.spark_jobs.tables.publisher import TableFailed
from tests.support import faulty_catalog
from tests.support.export_runs import pairs
from tests.support.faulty_catalog import Died
from tests.support.here_workers import HereWorkers
from tests.support.lakes import Lake
from tests.support.lengths import some

HOUR_MS = 3_600_000
AT_ONCE = ("--older-than-hours", "0")


class Kept(Lake):
    """A table of many small files, and its maintenance."""

    def fill(self, versions: int = 4, *words: str) -> None:
        for _ in range(versions):
            self.flights.grow(pairs(3), HOUR_MS)
            self.run(*words)

    def maintain(self, *words: str) -> dict[str, Any]:
        parser = argparse.ArgumentParser()
        job.add_arguments(parser)
        given = ["--destination", str(self.flights.target), "--catalog", str(self.file), "--table", "lake.t"]
        status, summary = job.maintain(parser.parse_args([*given, "--merge-files", "2", *words]), HereWorkers())
        assert status == (1 if "error" in summary else 0)
        return summary

    def on_disk(self) -> set[str]:
        """The table's data files on the disk."""
        return {str(path) for path in (self.flights.target / "data").rglob("*.parquet")}

    def named(self) -> set[str]:
        """The data files of the table's present state."""
        tasks = self.table().scan().plan_files()
        return {task.file.file_path.removeprefix("file://") for task in tasks}

    def metadata(self) -> set[str]:
        """Manifests and their lists on the disk."""
        return {str(path) for path in (self.flights.target / "data").rglob("*.avro")}

    def check_all_can_be_read(self) -> None:
        """Each snapshot of the table, and the manifests' files."""
        table = self.table()
        for snapshot in table.snapshots():
            table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        store = ManifestStore(str(self.flights.target))
        for file in store.live_files():
            store.open(str(file["path"]))


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    faulty_catalog.quiet()
    return Kept(tmp_path)


def test_small_files_become_one_and_old_states_go(lake: Kept) -> None:
    lake.fill()
    before = lake.rows()
    assert len(lake.named()) == 4
    told = lake.maintain(*AT_ONCE)
    assert (told["files_merged"], told["files_made"], told["snapshots_expired"], told["snapshots_left"]) == (4, 1, 4, 1)
    assert lake.rows() == before
    assert lake.on_disk() == lake.named()
    assert len(lake.named()) == 1
    # One list, and a manifest each of the added and the removed.
    assert len(lake.metadata()) == 3
    assert lake.table().current_snapshot().summary.operation.value == "replace"
    assert lake.table().current_snapshot().summary["total-records"] == "12"
    lake.check_all_can_be_read()
    lake.fill(1)
    assert lake.offsets() == list(range(15))


def test_a_second_run_has_nothing_to_do(lake: Kept) -> None:
    lake.fill()
    lake.maintain(*AT_ONCE)
    there = lake.on_disk(), lake.metadata()
    told = lake.maintain(*AT_ONCE)
    assert (told["files_merged"], told["snapshots_expired"], told["files_deleted"]) == (0, 0, 0)
    assert (lake.on_disk(), lake.metadata()) == there


def test_states_stay_as_long_as_the_options_or_the_table_say(lake: Kept) -> None:
    lake.fill()
    told = lake.maintain()
    assert (told["snapshots_expired"], told["snapshots_left"]) == (0, 5)
    assert len(lake.on_disk()) == 5
    lake.check_all_can_be_read()
    lake.table().transaction().set_properties({"history.expire.min-snapshots-to-keep": "3"}).commit_transaction()
    assert lake.maintain(*AT_ONCE)["snapshots_left"] == 3
    lake.check_all_can_be_read()
    assert lake.maintain(*AT_ONCE, "--keep", "2")["snapshots_left"] == 2
    lake.table().transaction().set_properties({"gc.enabled": "false"}).commit_transaction()
    told = lake.maintain(*AT_ONCE, "--keep", "1")
    assert (told["snapshots_left"], told["not_expired"]) == (2, "the table's gc.enabled is false")


def test_what_a_tag_names_stays(lake: Kept) -> None:
    lake.fill()
    first = lake.table().snapshots()[0].snapshot_id
    lake.table().manage_snapshots().create_tag(first, "audit").commit()
    lake.maintain(*AT_ONCE)
    assert len(lake.table().scan(snapshot_id=first).to_arrow()) == 3
    lake.check_all_can_be_read()


def test_partitions_are_merged_each_by_itself(lake: Kept) -> None:
    lake.fill(12, "--partition-by", "date")
    told = lake.maintain(*AT_ONCE)
    assert told["files_made"] == 2
    assert lake.offsets() == list(range(36))
    early = lake.table().scan("timestamp < '1970-01-02T00:00:00+00:00'")
    assert [len(list(early.plan_files())), len(early.to_arrow())] == [1, 24]


def test_an_upsert_is_only_expired(lake: Kept) -> None:
    lake.fill(4, "--mode", "upsert")
    before = lake.rows()
    told = lake.maintain(*AT_ONCE)
    assert (told["files_merged"], told["snapshots_expired"]) == (0, 3)
    assert told["not_rewritten"] == "an upsert writes its files anew itself"
    assert lake.rows() == before
    assert lake.on_disk() == lake.named()
    lake.check_all_can_be_read()


def test_dead_letters_are_merged_and_leave_the_disk_at_once(lake: Kept, tmp_path: Path) -> None:
    schema = tmp_path / "value.ddl"
    schema.write_text("id BIGINT")
    lake.fill(3, "--value-format", "json", "--value-schema", str(schema))
    told = lake.maintain()
    assert (told["files_merged"], told["files_made"]) == (3, 1)
    assert len(lake.flights.rows("dead_letters")) == 9
    assert lake.offsets() == []


# --- other programs


def rewritten_by_another(lake: Kept) -> None:
    """Copy the table's rows into one file, as another program's compaction does."""
    table = lake.table()
    table.overwrite(table.scan().to_arrow())


def test_what_another_program_rewrote_is_not_rewritten_again(lake: Kept) -> None:
    lake.fill()
    rewritten_by_another(lake)
    told = lake.maintain(*AT_ONCE)
    assert told["files_merged"] == 0
    assert lake.offsets() == list(range(12))
    # Our manifests name the small files, so they stay.
    lake.check_all_can_be_read()
    lake.fill(2)
    assert lake.maintain(*AT_ONCE)["files_merged"] == 2
    assert lake.offsets() == list(range(18))
    lake.check_all_can_be_read()


def test_another_program_rewrites_between_plan_and_commit(lake: Kept) -> None:
    lake.fill()

    def other() -> None:
        faulty_catalog.quiet()
        rewritten_by_another(lake)

    faulty_catalog.at_commit(other)
    lake.maintain("--older-than-hours", "9")
    assert lake.offsets() == list(range(12))
    lake.check_all_can_be_read()
    lake.fill(1)
    assert lake.offsets() == list(range(15))


def test_rows_that_another_program_deleted_stay_deleted(lake: Kept) -> None:
    lake.fill()
    lake.table().delete("offset = 4")
    lake.maintain(*AT_ONCE)
    assert lake.offsets() == [n for n in range(12) if n != 4]


def test_rows_of_others_stay(lake: Kept) -> None:
    lake.fill()
    table = lake.table()
    theirs = table.scan().to_arrow().slice(0, 1)
    table.append(theirs.set_column(theirs.column_names.index("offset"), "offset", pa.array([99], pa.int64())))
    lake.maintain(*AT_ONCE)
    assert lake.offsets() == [*range(12), 99]
    lake.check_all_can_be_read()


# --- what is refused


def test_another_tables_export_is_refused(lake: Kept) -> None:
    with pytest.raises(TableFailed, match="is gone from the catalog"):
        lake.maintain()
    lake.fill(1)
    with pytest.raises(TableFailed, match=r"lake\.other is gone"):
        lake.maintain("--table", "lake.other")
    with pytest.raises(TableFailed, match="has no export"):
        lake.maintain("--destination", str(lake.flights.root / "elsewhere"))
    with pytest.raises(JobFailed, match="give --catalog and --table"):
        lake.maintain("--table", "")


def test_a_file_that_cannot_be_deleted_is_told_and_tried_again(lake: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.fill()

    def refuse(self: Any, location: Any) -> None:
        raise PermissionError(f"{location}: not yours")

    with monkeypatch.context() as patched:
        patched.setattr(faulty_catalog.FaultyFiles, "delete", refuse)
        told = lake.maintain(*AT_ONCE)
    assert told["not_deleted"] > 4
    assert "not yours" in next(iter(told["first_not_deleted"].values()))
    assert told["error"].startswith(f"{told['not_deleted']} files could not be deleted: file:///")
    assert lake.maintain(*AT_ONCE)["not_deleted"] == 0
    assert lake.on_disk() == lake.named()
    assert not list((lake.flights.target / "_expired").iterdir())


def test_a_failure_of_the_last_step_does_not_hide_what_was_done(
    lake: Kept, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.fill()
    with monkeypatch.context() as patched:
        patched.setattr(expiry, "PAUSES_S", ())
        patched.setattr(History, "forget", refuse)
        told = lake.maintain(*AT_ONCE)
    assert told["error"].endswith("snapshots of the table are not forgotten: the catalog: it says no")
    assert "what is done stays: " in capsys.readouterr().err
    assert (told["files_merged"], told["files_made"], told["snapshots_expired"]) == (4, 1, 0)
    assert told["manifest_version"] == ManifestStore(str(lake.flights.target)).latest().version
    monkeypatch.setattr(expiry, "DELETED_AT_ONCE", 3)
    delete = History.delete

    def once(self: History, urls: list[str]) -> dict[str, str]:
        monkeypatch.setattr(History, "delete", refuse)
        return delete(self, urls)

    monkeypatch.setattr(History, "delete", once)
    told = lake.maintain(*AT_ONCE)
    assert (told["snapshots_expired"], told["files_deleted"], told["error"]) == (4, 3, "the catalog: it says no")


def test_a_failure_before_anything_is_done_is_raised(lake: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.fill(2)
    monkeypatch.setattr(expiry, "PAUSES_S", ())
    monkeypatch.setattr(History, "forget", refuse)
    with pytest.raises(CatalogFailed, match="it says no"):
        lake.maintain(*AT_ONCE, "--target-file-mib", "0")


def refuse(*_: Any) -> Any:
    raise CatalogFailed("the catalog: it says no")


# --- whoever dies, is not answered, or comes first

FAULTS = [faulty_catalog.die_before, faulty_catalog.die_after, faulty_catalog.lose_answer, faulty_catalog.never_arrive]


def requests_of(lake: Kept) -> int:
    faulty_catalog.at(-1, faulty_catalog.die_before)
    lake.maintain(*AT_ONCE)
    return faulty_catalog.counted()


@pytest.mark.slow
@pytest.mark.parametrize("how", FAULTS, ids=lambda how: how.__name__)
def test_killed_or_unanswered_at_any_request_and_file(lake: Kept, how: Callable[[], None]) -> None:
    lake.fill(3)
    back = lake.kept_aside()
    count = requests_of(lake)
    assert count >= 12
    for request in some(range(count), FAULTS.index(how), len(FAULTS)):
        back()
        faulty_catalog.at(request, how)
        with suppress(Died, CatalogFailed):
            lake.maintain(*AT_ONCE)
        assert lake.offsets() == list(range(9)), request
        lake.check_all_can_be_read()
        lake.maintain(*AT_ONCE)
        assert lake.offsets() == list(range(9)), request
        assert lake.on_disk() == lake.named(), request
        assert len(lake.named()) == 1, request


@pytest.mark.slow
def test_an_export_at_any_request_of_a_maintenance(lake: Kept) -> None:
    lake.fill(3)
    lake.flights.grow(pairs(3), HOUR_MS)
    back = lake.kept_aside()
    count = requests_of(lake)

    def other() -> None:
        faulty_catalog.quiet()
        lake.run()

    for request in some(range(count)):
        back()
        faulty_catalog.at(request, other)
        lake.maintain(*AT_ONCE)
        assert lake.offsets() == list(range(12)), request
        lake.check_all_can_be_read()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_maintenance_at_any_request_of_an_export(lake: Kept, mode: str) -> None:
    lake.fill(3, "--mode", mode)
    lake.flights.grow(pairs(3), HOUR_MS)
    back = lake.kept_aside()
    faulty_catalog.at(-1, faulty_catalog.die_before)
    lake.run("--mode", mode)
    count, wanted = faulty_catalog.counted(), lake.rows()

    def other() -> None:
        faulty_catalog.quiet()
        lake.maintain(*AT_ONCE)

    for request in some(range(count)):
        back()
        faulty_catalog.at(request, other)
        lake.run("--mode", mode)
        assert lake.rows() == wanted, request
        lake.check_all_can_be_read()


@pytest.mark.slow
def test_two_maintenances(lake: Kept) -> None:
    lake.fill(3)
    back = lake.kept_aside()
    count = requests_of(lake)

    def other() -> None:
        faulty_catalog.quiet()
        lake.maintain(*AT_ONCE)

    for request in some(range(count)):
        back()
        faulty_catalog.at(request, other)
        with suppress(Fenced):
            lake.maintain(*AT_ONCE)
        assert lake.offsets() == list(range(9)), request
        lake.check_all_can_be_read()
        lake.maintain(*AT_ONCE)
        assert lake.on_disk() == lake.named(), request
