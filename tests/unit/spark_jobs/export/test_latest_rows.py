"""The second pass of an upsert: which rows are the latest, and that what is held does not grow with the files."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logyard.broker.errors import CorruptData
from logyard.spark_jobs.export import files, latest_rows
from logyard.spark_jobs.export.errors import ExportRefused
from logyard.spark_jobs.export.files import OpenFile, Output, WrittenFile
from logyard.spark_jobs.export.latest_rows import Source, last_offsets, rows_at
from logyard.spark_jobs.export.places.folder import Folder
from logyard.spark_jobs.export.upsert import Bucket, buckets_of, write_bucket

OUTPUT = Output(("offset", "key", "value"), upsert=True)
SCHEMA = OUTPUT.schema
Row = tuple[int, bytes, bytes | None]


def table(rows: list[Row]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def written(path: Path, rows: list[Row], group: int = 7) -> Source:
    pq.write_table(table(rows), path, row_group_size=group)
    return Source(str(path), path.name, len(rows))


@pytest.mark.parametrize("seed", range(20))
def test_the_latest_row_of_each_key(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(latest_rows, "BATCH_ROWS", rng.choice([1, 3, 4096]))
    monkeypatch.setattr(latest_rows, "KEYS_AT_ONCE", rng.choice([1, 20, 10**6]))
    monkeypatch.setattr(latest_rows, "PART_BYTES", rng.choice([1, 50, 10**6]))
    sources, newest, at = [], dict[bytes, Row](), 0
    for number in range(rng.randrange(1, 5)):
        rows: list[Row] = []
        for _ in range(rng.randrange(1, 60)):
            at += rng.randrange(1, 4)
            key = b"" if rng.random() < 0.1 else b"key %d" % rng.randrange(40)
            rows.append((at, key, None if rng.random() < 0.2 else b"v%d" % at))
        newest |= {row[1]: row for row in rows}
        sources.append(written(tmp_path / f"{number}", rows))
    count = rng.choice([1, 4])

    def wanted(keys: pa.Array) -> np.ndarray:
        return np.asarray(buckets_of(keys, count) == 0)

    mine = {key for key in newest if wanted(pa.array([key], pa.binary()))[0]}
    last = last_offsets(sources, wanted)
    assert last.tolist() == sorted(newest[key][0] for key in mine)
    found = pa.Table.from_batches(rows_at(sources, last, SCHEMA), SCHEMA).to_pylist()
    assert [(row["offset"], row["key"], row["value"]) for row in found] == sorted(
        newest[key] for key in mine if newest[key][2] is not None
    )


def test_a_row_that_two_files_have_comes_once(tmp_path: Path) -> None:
    sources = [written(tmp_path / name, [(3, b"k", b"v")]) for name in ("a", "b")]
    found = pa.Table.from_batches(rows_at(sources, last_offsets(sources), SCHEMA), SCHEMA).to_pylist()
    assert [row["offset"] for row in found] == [3]


def test_a_file_that_is_another_one_or_gone_is_named(tmp_path: Path) -> None:
    source = written(tmp_path / "a", [(0, b"k", b"v")])
    with pytest.raises(CorruptData, match="a: it has 1 rows, 2 were committed"):
        last_offsets([Source(source.opened, source.where, 2)])
    (tmp_path / "a").unlink()
    with pytest.raises(ExportRefused, match="a is gone: another export"):
        last_offsets([source])


@contextmanager
def counted() -> Iterator[pa.MemoryPool]:
    """Count what Arrow holds at the most."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(before)


def test_what_a_bucket_holds_does_not_grow_with_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some MB of files are gigabytes of rows. From version to version the row groups stay as large as they are."""
    group, size, count = 2**21, 20_000, 2000
    monkeypatch.setattr(files, "ROW_GROUP_BYTES", group)
    monkeypatch.setattr(latest_rows, "PART_BYTES", group // 4)
    place = Folder(str(tmp_path))

    def write(run: str, name: str, rows: list[Row]) -> WrittenFile:
        file = OpenFile("data", name, place.files(run), SCHEMA)
        for batch in table(rows).to_batches(max_chunksize=20):
            file.add(batch, np.int64(0))
            file.flush_full()
        return file.finish()

    def rows(first: int) -> list[Row]:
        return [(first + n, b"k%d" % n, bytes(size) + b"%d" % (first + n)) for n in range(0, count, 1 + (first > 0))]

    live = write("r0", "data/t/0/first", rows(0))
    for version in range(1, 4):
        news = write(f"r{version}", "scattered/t/0/0/news", rows(version * count))
        before = {"path": live.staged, "rows": live.rows, "bytes": live.bytes, "bucket": 0, "buckets": 1}
        bucket = Bucket("t", 0, 0, 1, (version + 1) * count, (before,), (news,), f"r{version}")
        with counted() as pool:
            (live,) = write_bucket(bucket, OUTPUT, place.files(f"r{version}"))
        assert live.rows == count
        assert count * size > 36 * 2**20
        assert pool.max_memory() < 8 * group, "it holds a few row groups"
        footer = pq.ParquetFile(tmp_path / live.staged).metadata
        assert max(footer.row_group(n).num_rows for n in range(footer.num_row_groups)) * size <= group * 5 // 4
    newest = {b"k%d" % n: (3 * count if n % 2 == 0 else 0) + n for n in range(count)}
    found = pq.ParquetFile(tmp_path / live.staged).read(["key", "offset"]).to_pylist()
    assert {row["key"]: row["offset"] for row in found} == newest
