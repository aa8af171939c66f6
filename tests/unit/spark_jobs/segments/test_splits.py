"""Splits: every visible record is in exactly one file, whatever the range, the cuts and the isolation."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from logyard.broker.compaction.transactions import AbortedTransaction
from logyard.broker.compiled import chunks
from logyard.broker.compiled.chunks import CorruptBatch
from logyard.spark_jobs.export.files import Output, WrittenSplit, write_split
from logyard.spark_jobs.export.places.folder import FolderRun
from logyard.spark_jobs.segments import splits
from logyard.spark_jobs.segments.replicas import Replica, of_partition_directory
from logyard.spark_jobs.segments.splits import Range, Split
from tests.support import compaction_model as model
from tests.support.batches import CONTROL, Rec, batch
from tests.support.job_replicas import replica_of_log
from tests.support.segment_files import write_partition
from tests.support.steps import lines_run


def export(span: Range, target: Path, *, committed_only: bool = True, split_bytes: int = 1) -> list[WrittenSplit]:
    planned = splits.plan_splits(span, committed_only=committed_only, columns=splits.COLUMNS, split_bytes=split_bytes)
    return [
        write_split(s, Output(splits.COLUMNS), FolderRun(str(target), str(target / "_staging" / "r"))) for s in planned
    ]


def rows_of(target: Path, written: list[WrittenSplit]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for w in written:
        if not w.files:
            assert w.rows == 0
            continue
        (file,) = w.files
        table = pq.read_table(target / file.staged)
        assert table.column_names == list(splits.COLUMNS)
        assert table.num_rows == w.rows
        table = table.set_column(3, "timestamp", table.column("timestamp").cast("int64"))
        rows += [
            (r["offset"], r["timestamp"], r["key"], r["value"], tuple((h["key"], h["value"]) for h in r["headers"]))
            for r in table.to_pylist()
        ]
    return rows


def expected(log: model.Log, start: int, end: int, committed_only: bool) -> list[tuple[Any, ...]]:
    return [
        (r.offset, r.timestamp, r.key, r.value, r.headers)
        for b in log.batches
        if not b.flags & CONTROL and not (committed_only and log.transactions.get(b.base) in log.aborted)
        for r in b.records
        if start <= r.offset < end
    ]


@pytest.mark.parametrize("seed", range(12))
def test_every_visible_record_is_in_exactly_one_file(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    log = model.random_log(rng, 60)
    replica = replica_of_log(tmp_path, log)
    start, end = sorted(rng.randrange(log.end + 1) for _ in range(2))
    committed_only = rng.random() < 0.5
    written = export(
        Range(replica, start, end), tmp_path, committed_only=committed_only, split_bytes=rng.choice([1, 300, 10**6])
    )
    assert rows_of(tmp_path, written) == expected(log, start, end, committed_only)
    assert [w.start for w in written] == sorted(w.start for w in written)


def test_large_segments_are_cut_at_index_entries_and_names_are_deterministic(tmp_path: Path) -> None:
    log = model.Log([batch([Rec(i, b"k", b"v" * 50)]) for i in range(40)])
    replica = replica_of_log(tmp_path, log, cuts=2)
    split_bytes = replica.segments[0].size // 4

    def plan() -> list[Split]:
        return list(
            splits.plan_splits(Range(replica, 3, 40), committed_only=True, columns=("key",), split_bytes=split_bytes)
        )

    planned = plan()
    assert len([s for s in planned if s.segment.base_offset == 0]) > 2
    assert [(s.start, s.end) for s in planned] == [
        *zip([3, *(s.start for s in planned[1:])], [*(s.start for s in planned[1:]), 40], strict=True)
    ]
    assert [s.name for s in planned] == [s.name for s in plan()]
    assert planned[0].name.startswith(f"p-{3:020d}-{planned[0].end:020d}-")


def test_digests_add_up_over_any_cut(tmp_path: Path) -> None:
    log = model.random_log(random.Random(3), 80)
    replica = replica_of_log(tmp_path, log)
    whole = export(Range(replica, 0, log.end), tmp_path / "a")
    first, second = (export(Range(replica, *s), tmp_path / "b") for s in ((0, 50), (50, log.end)))
    total = sum(w.digest for w in whole) % 2**64
    assert total == sum(w.digest for w in [*first, *second]) % 2**64 != 0


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    log = model.Log([batch([Rec(i, b"k", b"v")]) for i in range(10)])
    return replica_of_log(tmp_path, log, cluster_id="c", topic_id="one", last_stable_offset=8)


def test_damage_stops_an_export(tmp_path: Path, replica: Replica) -> None:
    path = Path(replica.segments[0].directory) / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptBatch, match="checksum"):
        export(Range(replica, 0, 10), tmp_path)
    assert not list((tmp_path / "_staging").rglob("*.parquet"))


def test_a_chunk_that_unpacks_to_too_much_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "PART_BYTES", 90_000)
    log = [batch([Rec(2 * i + j, b"k", b"%d" % i * 50_000) for j in range(2)], codec=4) for i in range(4)]
    replica = of_partition_directory(str(write_partition(tmp_path, "t-0", [log])))
    (split,) = splits.plan_splits(Range(replica, 1, 7), committed_only=True, columns=["offset", "value"])
    rows = [row for part, _ in splits.split_rows(split) for row in part.to_pylist()]
    assert [(row["offset"], row["value"][:1]) for row in rows] == [(i, b"%d" % (i // 2)) for i in range(1, 7)]


def test_ten_times_as_many_segments_and_aborted_transactions_are_ten_times_the_planning(tmp_path: Path) -> None:
    def lines_of(count: int) -> int:
        log = [[batch([Rec(2 * i, b"k", b"v"), Rec(2 * i + 1, b"k", b"v")])] for i in range(count)]
        replica = of_partition_directory(str(write_partition(tmp_path / str(count), "t-0", log)))
        short, long = [(1, 2 * i, 2 * i + 1) for i in range(count)], (2, 3, 2 * count - 2)
        span = Range(replace(replica, aborted=tuple(AbortedTransaction(*a) for a in (*short, long))), 0, 2 * count)
        plan: list[Split] = []
        lines = lines_run(
            splits,
            lambda: plan.extend(splits.plan_splits(span, committed_only=True, columns=splits.COLUMNS)),
        )
        wanted = [{one, long} if number else {one} for number, one in enumerate(short)]
        assert [set(split.aborted) for split in plan] == wanted
        return lines

    assert lines_of(200) < 11 * lines_of(20)
