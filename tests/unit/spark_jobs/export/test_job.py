"""Whole runs of the export over a directory, in this process: what is there afterwards, whatever happened before."""

import argparse
import os
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyarrow.dataset import dataset

from logyard.spark_jobs import cluster
from logyard.spark_jobs.export import account, job, merges, options
from logyard.spark_jobs.export.errors import ExportRefused
from logyard.spark_jobs.export.job import MEBIBYTE
from logyard.spark_jobs.export.manifest_store import ManifestStore
from logyard.spark_jobs.export.modes import Upserting
from logyard.spark_jobs.export.places.folder import Folder
from logyard.spark_jobs.export.schema.evolution import SchemaRefused
from tests.support.batches import Rec, batch
from tests.support.crash_points import crash_points
from tests.support.export_runs import Flights, pairs
from tests.support.here_workers import HereWorkers
from tests.support.segment_files import write_partition
from tests.support.steps import lines_run

DAY_MS = 86_400_000
# Every place where a run can die (1) takes half a minute; this many leave a few seconds.
STEP = int(os.environ.get("LOGYARD_CRASH_STEP", "5"))


@pytest.fixture
def flights(tmp_path: Path) -> Flights:
    return Flights(tmp_path)


# --- destinations


def test_a_file_url_is_a_directory(flights: Flights) -> None:
    flights.grow(pairs(8))
    flights.target = flights.root / "with space"
    flights.run("--destination", flights.target.as_uri())
    assert flights.offsets() == list(range(8))
    assert options.directory_of("exports:2026/at=10:00") == str(Path.cwd() / "exports:2026/at=10:00")


@pytest.mark.parametrize(
    "url", ["hdfs://host:8020/x", "oss://bucket/x", "https://host/x", "file://elsewhere/x", "file://[x", "s3:/x"]
)
def test_other_stores_are_refused_before_anything_is_made(url: str, flights: Flights) -> None:
    flights.grow(pairs(4))
    parser = argparse.ArgumentParser()
    cluster.add_arguments(parser)
    options.add_arguments(parser)
    given = parser.parse_args(["--log-dir", str(flights.log), "--destination", url])
    before = set(Path.cwd().iterdir())
    with pytest.raises(
        ExportRefused, match=rf"--destination {re.escape(url)}: .* or to s3://, gs:// or abfss://; others: mount it"
    ):
        job.export(given, HereWorkers())
    assert set(Path.cwd().iterdir()) == before


# --- crashes


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--partition-by", "date"),
        ("--value-format", "json", "--value-schema", "SCHEMA"),
        ("--mode", "upsert"),
        ("--target-file-mib", "1", "--merge-files", "2"),
        ("--commit-mib", "1", "--target-file-mib", "0"),
        ("--commit-mib", "1", "--mode", "upsert"),
        ("--commit-mib", "1", "--merge-files", "2"),
    ],
    ids=["plain", "partitioned", "json", "upsert", "merged", "pieces", "upserted pieces", "merged pieces"],
)
def test_dead_at_any_point_and_run_again_every_row_is_there_once(
    words: tuple[str, ...], flights: Flights, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = flights.root / "schema"
    schema.write_text("id BIGINT NOT NULL")
    given = [str(schema) if word == "SCHEMA" else word for word in words]
    flights.grow([(b"k%d" % (i % 5), b'{"id": %d}' % i if i % 3 else b"no json") for i in range(20)], DAY_MS // 5)
    if "--commit-mib" in words:  # so many bytes: a piece is a segment
        monkeypatch.setattr(job, "MEBIBYTE", 100)
        monkeypatch.setattr(Upserting, "piece_bytes", lambda _self, wanted, _manifest: wanted)
    flights.run(*given)
    flights.grow([(b"k%d" % (i % 7), b'{"id": %d}' % i if i % 3 else b"no json") for i in range(20)], DAY_MS // 5)
    os.rename(flights.target, flights.root / "base")

    def reset() -> None:
        """Look at what is there, run again, look again; then begin anew from the first run."""
        if "upsert" not in words and "--merge-files" not in words:
            offsets = flights.offsets()
            assert len(offsets) == len(set(offsets))
        flights.run(*given)
        check()
        begin()

    def begin() -> None:
        shutil.rmtree(flights.target, ignore_errors=True)
        shutil.copytree(flights.root / "base", flights.target)

    def check() -> None:
        good, bad = flights.offsets(), [row["offset"] for row in flights.rows("dead_letters")]
        if "upsert" in words:
            last = {r.key: r.offset for r in flights.records}
            assert good == sorted(last.values())
        else:
            assert sorted(good + bad) == list(range(40))
            assert bad == (
                [i for i, r in enumerate(flights.records) if r.value == b"no json"] if "json" in words else []
            )
        store = ManifestStore(str(flights.target))
        live = {str(f["path"]) for f in store.live_files()}
        there = {str(p.relative_to(flights.target)) for p in flights.target.glob("d*/**/*.parquet")}
        assert live == there
        # What was never committed stays for a day: it may be another's, who is still at work.
        assert not store.is_unpublished(store.latest())
        assert not os.path.exists(store.staging(store.latest().run_id))

    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)  # nothing here asks the disk, and it takes seconds
    begin()
    versions = flights.run(*given)["versions"]
    assert versions > 1 if "--commit-mib" in words else versions == 1
    begin()
    points = crash_points(lambda: flights.run(*given), monkeypatch, reset, STEP)
    check()
    assert points > 10


@pytest.mark.parametrize("words", [(), ("--merge-files", "2")])
def test_a_disk_that_fails_after_the_commit_costs_nothing(
    words: tuple[str, ...], flights: Flights, monkeypatch: pytest.MonkeyPatch
) -> None:
    flights.grow(pairs(20))
    flights.run()
    flights.grow(pairs(20))
    linked = ManifestStore.commit

    def full(store: ManifestStore, manifest: Any) -> None:
        linked(store, manifest)
        monkeypatch.setattr(Folder, "move", no_space)

    def no_space(*_: Any) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(ManifestStore, "commit", full)
        status, told = job.export(flights.given(*words), HereWorkers())
        assert status == 1
        assert (told["rows"], told["manifest_version"], told["error"]) == (20, 2, "no space left on device")
        assert (told["offsets"]["t-0"]["end"], told["topics_failed"]) == (40, {})
    monkeypatch.undo()
    flights.run(*words)
    assert flights.offsets() == list(range(40))


# --- formats, schemas


def test_bad_records_are_dead_letters_of_the_same_commit(flights: Flights) -> None:
    schema = flights.root / "value.ddl"
    schema.write_text("id BIGINT NOT NULL, at TIMESTAMP, tags ARRAY<STRING>")
    values = [
        b'{"id": 1, "at": "2026-01-31T12:00:00+01:00", "tags": ["a", null], "more": {}}',
        b'{"id": "1"}',
        None,
        b"{",
        b"\xff",
        b'{"tags": [3], "id": 1}',
        b'{"id": 5}',
        b"[]",
    ]
    flights.grow([(b"k", value) for value in values[:-1]] + [(b"\xff", values[-1])])
    said = flights.run("--value-format", "json", "--value-schema", str(schema), "--key-format", "string")
    assert (said["rows"], said["dead_letters"], said["manifest_version"]) == (3, 5, 1)
    good = flights.rows()
    assert [(r["offset"], r["key"]) for r in good] == [(0, "k"), (2, "k"), (6, "k")]
    assert good[0]["value"]["at"].isoformat() == "2026-01-31T11:00:00+00:00"
    assert (good[0]["value"]["tags"], good[1]["value"], good[2]["value"]["id"]) == (["a", None], None, 5)
    dead = {r["offset"]: r for r in flights.rows("dead_letters")}
    assert {o: (r["side"], r["reason"]) for o, r in dead.items()} == {
        1: ("value", "id: a whole number is expected, found text"),
        3: ("value", dead[3]["reason"]),
        4: ("value", "it is not UTF-8 (byte 0)"),
        5: ("value", "tags[0]: text is expected, found a number"),
        7: ("key", "it is not UTF-8 (byte 0)"),
    }
    assert dead[3]["reason"].startswith("it is not JSON: ")
    assert (dead[7]["key"], dead[7]["value"], dead[5]["topic"]) == (b"\xff", b"[]", "t")


def test_a_schema_grows_by_nullable_columns_only(flights: Flights) -> None:
    schema = flights.root / "value.ddl"
    words = ("--value-format", "json", "--value-schema", str(schema))
    schema.write_text("id BIGINT")
    flights.grow([(b"k", b'{"id": 1, "price": 2.5}')])
    flights.run(*words)
    schema.write_text("id BIGINT, price DOUBLE")
    flights.grow([(b"k", b'{"id": 2, "price": 2.5}')])
    assert flights.run(*words)["rows"] == 1
    schema.write_text("id STRING, price DOUBLE")
    with pytest.raises(SchemaRefused, match=r"t: column value.id: was BIGINT, is STRING now"):
        flights.run(*words)
    with pytest.raises(SchemaRefused, match=r"column value: was STRUCT<.*>, is BINARY now"):
        flights.run()
    assert [r["value"].get("price") for r in flights.rows()] == [None, 2.5]


def test_rows_that_stay_grow_with_the_schema_of_an_upsert(flights: Flights) -> None:
    schema = flights.root / "value.ddl"
    words = ("--mode", "upsert", "--value-format", "json", "--value-schema", str(schema))
    schema.write_text("id BIGINT, tags ARRAY<STRING>")
    flights.grow([(b"a", b'{"id": 1, "tags": ["x"]}'), (b"b", b'{"id": 2}')])
    flights.run(*words)
    schema.write_text("price DOUBLE, id BIGINT, tags ARRAY<STRING>, more STRUCT<a: INT>")
    flights.grow([(b"b", b'{"id": 3, "price": 2.5, "more": {"a": 1}}'), (b"c", b"no json")])
    assert flights.run(*words)["dead_letters"] == 1
    assert [(r["key"], r["value"]) for r in flights.rows()] == [
        (b"a", {"price": None, "id": 1, "tags": ["x"], "more": None}),
        (b"b", {"price": 2.5, "id": 3, "tags": None, "more": {"a": 1}}),
    ]


def test_what_a_directory_was_begun_with_stays(flights: Flights) -> None:
    flights.grow(pairs(4))
    flights.run("--partition-by", "topic,date")
    with pytest.raises(ExportRefused, match="--partition-by: this directory was begun with topic,date, not none"):
        flights.run()
    with pytest.raises(ExportRefused, match="--mode: this directory was begun with append, not upsert"):
        flights.run("--mode", "upsert")


# --- partition columns, merging


def test_rows_go_to_the_directory_of_their_day(flights: Flights) -> None:
    flights.grow(pairs(10), DAY_MS // 4)
    flights.run("--partition-by", "topic,date,hour=%H", "--columns", "topic,offset")
    found = {
        str(path.parent.relative_to(flights.target)): pq.ParquetFile(path).read().to_pydict()["offset"]
        for path in flights.target.rglob("*.parquet")
        if "_staging" not in path.parts
    }
    assert found["data/topic=t/date=1970-01-02/hour=06"] == [5]
    assert sorted(o for offsets in found.values() for o in offsets) == list(range(10))
    assert len(found) == 10
    names = {path.name for path in flights.target.rglob("data/**/*.parquet")}
    shutil.rmtree(flights.target)
    flights.run("--partition-by", "topic,date,hour=%H", "--columns", "topic,offset")
    assert {path.name for path in flights.target.rglob("data/**/*.parquet")} == names


@pytest.mark.parametrize("topic", ["_schemas", ".orders"])
def test_readers_find_the_rows_of_topics_whose_names_look_hidden(topic: str, flights: Flights) -> None:
    """Arrow's readers pass over the same names as Spark's."""
    write_partition(flights.log, f"{topic}-0", [[batch([Rec(i, b"k", b"v", 1000) for i in range(8)])]])
    flights.run("--partition-by", "date")
    assert dataset(flights.target / "data", format="parquet").count_rows() == 8


def test_small_files_become_one_when_enough_are_there(flights: Flights) -> None:
    for runs in range(1, 5):
        flights.grow(pairs(12))
        said = flights.run("--merge-files", "4")
        assert said["merged_files"] == (4 if runs == 4 else 0)
    assert flights.offsets() == list(range(48))
    (path,) = flights.target.rglob("data/**/*.parquet")
    assert path.name.startswith(f"m-t-0-{0:020d}-{48:020d}-")
    assert flights.run("--merge-files", "4")["merged_files"] == 0
    store = ManifestStore(str(flights.target))
    assert (store.latest().version, [f["rows"] for f in store.live_files()]) == (5, [48])


def test_which_files_are_merged() -> None:
    def file(start: int, size: int, **more: Any) -> dict[str, Any]:
        path = f"{more.get('home', 'data/t/0')}/{start}"
        return {"path": path, "topic": "t", "partition": 0, "start": start, "end": start + 1, "bytes": size, **more}

    def starts(*files: dict[str, Any], least: int = 3) -> list[list[int]]:
        shuffled = list(files)
        random.Random(1).shuffle(shuffled)
        return [[f["start"] for f in m.files] for m in merges.plan_merges(shuffled, 2 * MEBIBYTE, least)]

    small, large = MEBIBYTE // 4, 2 * MEBIBYTE  # of a target of two
    assert starts(*(file(i, small) for i in range(2))) == []
    assert starts(*(file(i, small) for i in range(3))) == [[0, 1, 2]]
    assert starts(*(file(i, small) for i in range(10))) == [list(range(8))], "as many as fill one, two wait"
    assert starts(*(file(i, MEBIBYTE // 2) for i in range(8))) == [], "large enough: they are not written again"
    assert starts(file(0, small), file(1, large), *(file(i, small) for i in range(2, 5))) == [[2, 3, 4]]
    assert starts(*(file(i, small, schema="a" if i < 3 else "b") for i in range(6))) == [[0, 1, 2], [3, 4, 5]]
    assert starts(*(file(i, small, home=f"data/t/{i % 3}") for i in range(6))) == []


def test_very_many_small_files_are_planned_in_one_go() -> None:
    row = {"topic": "t", "partition": 0, "bytes": 10}
    files = [row | {"path": f"data/t/0/{i}", "start": i, "end": i + 1} for i in range(500)]
    plan: list[merges.Merge] = []
    assert lines_run(merges, lambda: plan.extend(merges.plan_merges(files, 2 * MEBIBYTE))) < 20 * 500
    assert [len(merge.files) for merge in plan] == [500]


def test_the_summary_of_very_many_partitions_is_one_look_at_what_was_written(tmp_path: Path) -> None:
    def lines_of(count: int) -> int:
        flights, said = Flights(tmp_path / str(count)), dict[str, Any]()
        for partition in range(count):
            write_partition(flights.log, f"t-{partition}", [[batch([Rec(0, b"k", b"v")])]])
        lines = lines_run(account, lambda: said.update(flights.run()))
        assert [part["rows"] for part in said["offsets"].values()] == [1] * count
        return lines

    assert lines_of(100) < 11 * lines_of(10)


# --- upsert


def test_upsert_keeps_the_latest_of_each_key_and_forgets_the_deleted(flights: Flights) -> None:
    rng = random.Random(5)
    model: dict[bytes, tuple[int, bytes]] = {}
    dead = 0
    for buckets in (128, 128, 1):
        more: list[tuple[bytes | None, bytes | None]] = []
        for _ in range(40):
            key, value = b"k%d" % rng.randrange(30), rng.choice([None, b"v%d" % rng.randrange(999)])
            offset = len(flights.records) + len(more)
            if rng.random() < 0.1:
                more.append((None, b"keyless"))
                dead += 1
                continue
            more.append((key, value))
            model.pop(key, None)
            if value is not None:
                model[key] = offset, value
        flights.grow(more)
        said = flights.run("--mode", "upsert", "--bucket-mib", str(buckets), "--key-format", "string")
        assert said["rows"] + said["dead_letters"] == 40
        assert [(r["key"].encode(), r["offset"], r["value"]) for r in flights.rows()] == sorted(
            ((key, *found) for key, found in model.items()), key=lambda row: row[1]
        )
    assert len(flights.rows("dead_letters")) == dead > 0
    assert flights.run("--mode", "upsert", "--key-format", "string")["manifest_version"] == 3


def test_the_latest_rows_of_a_topic_that_was_made_again_replace_the_old_ones(flights: Flights) -> None:
    flights.grow(pairs(12))
    flights.run("--mode", "upsert")
    flights.records = []
    flights.grow([(b"new", b"v"), (b"k1", None)])
    (flights.log / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg")
    with pytest.raises(ExportRefused, match="--accept-new-topic"):
        flights.run("--mode", "upsert")
    flights.run("--mode", "upsert", "--accept-new-topic")
    assert [(r["key"], r["offset"]) for r in flights.rows()] == [(b"new", 0)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--columns", "offset,key"), "needs the column value"),
        (("--partition-by", "date"), "leave --partition-by out"),
        (("--format", "delta"), "into a table of a catalog, not delta"),
    ],
)
def test_upsert_says_what_does_not_go_with_it(words: tuple[str, ...], said: str, flights: Flights) -> None:
    with pytest.raises(ExportRefused, match=said):
        flights.run("--mode", "upsert", *words)
