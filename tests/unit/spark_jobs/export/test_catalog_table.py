"""A table of an Iceberg catalog: every version is one commit, whoever dies, is not answered or comes first."""

import json
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

from pyiceberg.schema import Schema

from logyard.spark_jobs.export.errors import ExportRefused
from logyard.spark_jobs.export.manifest_store import Fenced
from logyard.spark_jobs.tables import catalog
from logyard.spark_jobs.tables.catalog import CatalogFailed
from logyard.spark_jobs.tables.publisher import TableFailed
from tests.support import faulty_catalog
from tests.support.export_runs import pairs
from tests.support.faulty_catalog import Died, FaultyCatalog
from tests.support.lakes import Lake
from tests.support.lengths import some

HOUR_MS = 3_600_000


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    faulty_catalog.quiet()
    made = Lake(tmp_path)
    made.flights.grow(pairs(12), HOUR_MS)
    return made


def test_every_record_is_in_the_table_once(lake: Lake) -> None:
    assert lake.run()["rows"] == 12
    lake.flights.grow(pairs(8), HOUR_MS)
    assert lake.run()["rows"] == 8
    assert lake.run()["rows"] == 0
    rows = lake.rows()
    assert [row["offset"] for row in rows] == list(range(20))
    assert [row["value"] for row in rows] == [record.value for record in lake.flights.records]
    assert [row["timestamp"].timestamp() * 1000 for row in rows] == [i * HOUR_MS for i in range(12)] + [
        (12 + i) * HOUR_MS for i in range(8)
    ]


def test_a_catalog_that_hangs_is_a_failed_request(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = threading.Event()

    def hang() -> None:
        hangs.wait(30)

    faulty_catalog.at(0, hang)
    told = r"^the catalog: no answer within 0 s; what was asked may still be done$"
    with monkeypatch.context() as patched:
        patched.setattr(catalog, "PATIENCE_S", 0.2)
        with pytest.raises(CatalogFailed, match=told):
            lake.run()
    hangs.set()
    faulty_catalog.quiet()
    assert lake.run()["rows"] == 12
    assert lake.offsets() == list(range(12))


def test_a_snapshot_tells_the_offsets_and_the_table_its_version(lake: Lake) -> None:
    lake.run()
    lake.flights.grow(pairs(8))
    lake.run()
    table = lake.table()
    told = [json.loads(snapshot.summary["logyard.offsets"])["offsets"] for snapshot in table.snapshots()]
    assert told == [{"t": {"0": 12}}, {"t": {"0": 20}}]
    assert table.properties["logyard.version"] == "2"


@pytest.mark.parametrize(
    ("by", "values"),
    [
        ("date", [0, 1]),
        ("topic,month=%Y-%m", [0]),
        ("hour=%Y-%m-%dT%H", list(range(30))),
        ("year=%Y", [0]),
    ],
)
def test_partitions_are_transforms_and_bounds_are_known(lake: Lake, by: str, values: list[int]) -> None:
    lake.flights.grow(pairs(18), HOUR_MS)
    lake.run("--partition-by", by)
    table = lake.table()
    tasks = list(table.scan().plan_files())
    assert sorted({task.file.partition[-1] for task in tasks}) == values
    assert lake.offsets() == list(range(30))
    few = table.scan("offset < 3")
    assert len(list(few.plan_files())) <= len(tasks)
    assert len(few.to_arrow()) == 3
    early = table.scan("timestamp < '1970-01-01T02:00:00+00:00'")
    assert len(early.to_arrow()) == 2
    if by == "date":
        assert len(list(early.plan_files())) < len(tasks)


def test_a_pattern_that_iceberg_does_not_have_is_refused(lake: Lake) -> None:
    with pytest.raises(ExportRefused, match="a pattern has year, month, day, hour in this order"):
        lake.run("--partition-by", "minute=%H:%M")


def test_columns_that_are_added_later_are_null_before(lake: Lake, tmp_path: Path) -> None:
    lake.flights.grow([(b"k", b'{"id": 1, "gate": {"name": "a"}, "tags": ["x", null]}')])
    schema = tmp_path / "value.ddl"
    schema.write_text("id BIGINT, gate STRUCT<name: STRING>, tags ARRAY<STRING>, more MAP<STRING, INT>")
    words = ("--value-format", "json", "--value-schema", str(schema))
    assert lake.run(*words)["dead_letters"] == 12
    schema.write_text(
        "id BIGINT, gate STRUCT<name: STRING, rank: INT>, tags ARRAY<STRING>, more MAP<STRING, INT>, at DATE"
    )
    lake.flights.grow([(b"k", b'{"id": 2, "gate": {"name": "b", "rank": 7}, "more": {"q": 4}, "at": "2026-01-31"}')])
    lake.run(*words)
    values = [row["value"] for row in lake.rows()]
    assert values[0] == {"id": 1, "gate": {"name": "a", "rank": None}, "tags": ["x", None], "more": None, "at": None}
    assert values[1]["gate"] == {"name": "b", "rank": 7}
    assert str(values[1]["at"]) == "2026-01-31"
    assert values[1]["more"] == [("q", 4)]


# --- whoever dies, is not answered, or comes first


def requests_of(lake: Lake) -> int:
    faulty_catalog.at(-1, faulty_catalog.die_before)
    lake.run()
    count = faulty_catalog.counted()
    assert lake.offsets() == list(range(20))
    return count


FAULTS = [faulty_catalog.die_before, faulty_catalog.die_after, faulty_catalog.lose_answer, faulty_catalog.never_arrive]


@pytest.mark.slow
@pytest.mark.parametrize("how", FAULTS, ids=lambda how: how.__name__)
def test_killed_or_unanswered_at_any_request_and_file(lake: Lake, tmp_path: Path, how: Callable[[], None]) -> None:
    lake.run()
    lake.flights.grow(pairs(8), HOUR_MS)
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
        assert lake.offsets() in (list(range(12)), list(range(20))), request
        lake.run()
        assert lake.offsets() == list(range(20)), request


@pytest.mark.slow
def test_overtaken_at_any_request_and_file_one_of_two_wins(lake: Lake, tmp_path: Path) -> None:
    lake.run()
    lake.flights.grow(pairs(8), HOUR_MS)
    back = lake.kept_aside()
    count = requests_of(lake)

    def other() -> None:
        faulty_catalog.quiet()
        lake.run()

    for request in some(range(count)):
        back()
        faulty_catalog.at(request, other)
        with suppress(Fenced):
            lake.run()
        assert lake.offsets() == list(range(20)), request


@pytest.mark.usefixtures("lake")
def test_a_first_run_may_die_at_any_request(tmp_path: Path) -> None:
    for request in some(range(16)):
        (tmp_path / str(request)).mkdir()
        where = Lake(tmp_path / str(request))
        where.flights.grow(pairs(4))
        faulty_catalog.at(request, faulty_catalog.die_after)
        with suppress(Died):
            where.run()
        faulty_catalog.quiet()
        where.run()
        assert where.offsets() == list(range(4)), request


def test_a_commit_that_another_program_makes_meanwhile_costs_nothing(lake: Lake) -> None:
    """The library itself would put the files on top of whatever is there by then."""
    lake.run()
    lake.flights.grow(pairs(8), HOUR_MS)

    def other() -> None:
        faulty_catalog.quiet()
        table = lake.table()
        table.append(table.scan().to_arrow().slice(0, 0))

    faulty_catalog.at_commit(other)
    lake.run()
    assert lake.offsets() == list(range(20))
    assert len(list(lake.table().snapshots())) == 3


def test_a_request_that_is_repeated_on_the_way_is_not_taken_for_a_conflict(lake: Lake) -> None:
    lake.run()
    lake.flights.grow(pairs(8), HOUR_MS)
    faulty_catalog.at_commit(faulty_catalog.repeat)
    lake.run()
    assert lake.offsets() == list(range(20))


# --- tables that are refused


def test_a_table_of_others_is_refused(lake: Lake) -> None:
    catalog = FaultyCatalog("yard", uri=lake.settings["uri"], warehouse=str(lake.flights.root))
    catalog.create_namespace("lake")
    catalog.create_table("lake.t", Schema())
    with pytest.raises(TableFailed, match="was not made by an export"):
        lake.run()


def test_two_exports_do_not_share_a_table(lake: Lake, tmp_path: Path) -> None:
    lake.run()
    with pytest.raises(TableFailed, match="another export's"):
        lake.run("--destination", str(tmp_path / "elsewhere"))


def test_a_table_that_was_dropped_is_not_made_again(lake: Lake) -> None:
    lake.run()
    FaultyCatalog("yard", uri=lake.settings["uri"]).drop_table("lake.t")
    with pytest.raises(TableFailed, match="is gone from the catalog"):
        lake.run()


def test_a_table_that_is_newer_than_its_manifests_is_refused(lake: Lake) -> None:
    lake.run()
    manifests = lake.flights.target / "_manifest"
    shutil.copytree(manifests, lake.flights.root / "copy")
    lake.flights.grow(pairs(8))
    lake.run()
    shutil.rmtree(manifests)
    shutil.copytree(lake.flights.root / "copy", manifests)
    with pytest.raises(TableFailed, match="they are older than the table"):
        lake.run()
    assert lake.offsets() == list(range(20))


def test_another_table_is_another_destination(lake: Lake) -> None:
    lake.run()
    with pytest.raises(ExportRefused, match=r"begun with lake\.t, not lake\.other"):
        lake.run("--table", "lake.other")


def test_options_that_belong_together(lake: Lake) -> None:
    with pytest.raises(ExportRefused, match="needs --format iceberg, --catalog FILE and --table"):
        lake.flights.run("--table", "lake.t")
    with pytest.raises(ExportRefused, match="a name with its namespace"):
        lake.run("--table", "flights")


def test_errors_have_no_secret(lake: Lake) -> None:
    secret = "s3cr3t-of-a-catalog"
    lake.file.write_text(json.dumps({"type": "sql", "uri": f"nodatabase://user:{secret}@host/x", "password": secret}))
    with pytest.raises(CatalogFailed) as failed:
        lake.run()
    assert secret not in str(failed.value)
    lake.file.write_text(f'{{"uri": "{secret}')
    with pytest.raises(CatalogFailed, match="a JSON file is expected") as failed:
        lake.run()
    assert secret not in str(failed.value)
