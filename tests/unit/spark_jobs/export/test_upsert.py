"""Which buckets of an upsert are written anew, and what that costs."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logyard.broker.errors import LogyardError
from logyard.spark_jobs.export import files, upsert
from logyard.spark_jobs.export.files import WrittenFile
from logyard.spark_jobs.export.upsert import plan_buckets
from tests.support.batches import ZSTD, Rec, batch
from tests.support.export_runs import Flights
from tests.support.segment_files import write_partition
from tests.support.steps import lines_run


def file(bucket: int, buckets: int) -> dict[str, Any]:
    return {"path": f"data/t/0/b-{bucket}-of-{buckets}", "bucket": bucket, "buckets": buckets}


def fresh(*buckets: int) -> dict[tuple[str, int, int], list[WrittenFile]]:
    return {("t", 0, b): [WrittenFile("data", f"p-{b}", f"_staging/p-{b}", 1, 1, 0)] for b in buckets}


def test_buckets_with_new_rows_and_those_that_split_are_written_anew() -> None:
    same = plan_buckets("t", 0, 4, 9, [file(n, 4) for n in range(4)], fresh(1, 3))
    assert [(one.bucket, [f["bucket"] for f in one.before]) for one in same] == [(1, [1]), (3, [3])]
    split = plan_buckets("t", 0, 8, 9, [file(n, 2) for n in range(2)] + [file(5, 8)], fresh(6))
    assert [(one.bucket, [f["path"] for f in one.before], len(one.news)) for one in split] == [
        (n, [f"data/t/0/b-{n % 2}-of-2", *(["data/t/0/b-5-of-8"] if n == 5 else [])], int(n == 6)) for n in range(8)
    ]


def test_ten_times_as_many_buckets_are_ten_times_the_planning() -> None:
    def lines_of(count: int) -> int:
        live = [file(n, count) for n in range(count)]
        return lines_run(upsert, lambda: plan_buckets("t", 0, count, 9, live, fresh(*range(count))))

    assert lines_of(1024) < 11 * lines_of(102)


def test_what_a_task_holds_does_not_grow_with_its_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MiB of well compressed batches are gigabytes of rows."""
    count, value = 2000, bytes(20_000)
    records = [Rec(n, b"k%d" % n if n % 10 else b"often", value + b"%d" % n) for n in range(count)]
    batches = [batch(records[n : n + 50], codec=ZSTD) for n in range(0, count, 50)]
    flights = Flights(tmp_path)
    write_partition(flights.log, "t-0", [batches])
    monkeypatch.setattr(upsert, "HELD_BYTES", 2**21)
    monkeypatch.setattr(files, "ROW_GROUP_BYTES", 2**21)
    monkeypatch.setattr("logyard.broker.compiled.chunks.PART_BYTES", 2**20)
    held = list[int]()
    latest = upsert.latest

    def measured(rows: pa.Table) -> pa.Table:
        held.append(rows.nbytes)
        return latest(rows)

    with monkeypatch.context() as patched:
        patched.setattr(upsert, "latest", measured)
        scattered = flights.run("--mode", "upsert")
    assert (scattered["rows"], max(held[:-1]) < 2**23, len(held) > 4) == (count, True, True)
    newest = {record.key: record for record in records}
    assert flights.offsets() == sorted(record.offset for record in newest.values())
    assert {row["key"]: row["value"] for row in flights.rows()} == {key: r.value for key, r in newest.items()}


def test_too_many_buckets_are_told_by_the_option_that_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flights = Flights(tmp_path)
    flights.grow([(b"k%d" % n, b"v") for n in range(12)])
    monkeypatch.setattr(upsert, "bucket_count", lambda *_: 64)
    monkeypatch.setattr(files, "DIRECTORIES_MAX", 4)
    with pytest.raises(LogyardError, match="buckets: give --bucket-mib more"):
        flights.run("--mode", "upsert")
