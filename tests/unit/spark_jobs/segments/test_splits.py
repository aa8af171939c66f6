import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logyard.spark_jobs.export.files import Output, Written, write_split
from logyard.spark_jobs.export.manifest import Fenced, Manifest, ManifestStore, TopicProgress
from logyard.spark_jobs.segments import splits as exporting
from logyard.spark_jobs.segments.replicas import Replica, of_partition_directory
from logyard.spark_jobs.segments.splits import ExportRefused, Range, Split
from tests.support import compaction_model as model
from tests.support.batches import CONTROL, Rec, batch
from tests.support.segment_files import write_partition

PLAIN = {"committed_only": True, "allow_data_loss": False, "accept_new_topic": False}


def replica_of(tmp_path: Path, log: model.Log, cuts: int = 4, **fields: Any) -> Replica:
    step = max(len(log.batches) // cuts, 1)
    segments = [log.batches[i : i + step] for i in range(0, len(log.batches), step)]
    directory = write_partition(tmp_path / "log", "t-0", segments)
    aborted = tuple(exporting_aborted(log))
    return replace(of_partition_directory(str(directory)), aborted=aborted, **fields)


def exporting_aborted(log: model.Log) -> Any:
    from logyard.broker.compaction.transactions import AbortedTransaction

    return [AbortedTransaction(*row) for row in log.aborted_index()]


def export(span: Range, target: Path, *, committed_only: bool = True, split_bytes: int = 1) -> list[Written]:
    splits = list(
        exporting.plan_splits(span, committed_only=committed_only, columns=exporting.COLUMNS, split_bytes=split_bytes)
    )
    return [write_split(s, Output(exporting.COLUMNS), str(target), str(target / "_staging" / "r")) for s in splits]


def rows_of(target: Path, written: list[Written]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for w in written:
        if not w.files:
            assert w.rows == 0
            continue
        (file,) = w.files
        table = pq.read_table(target / file.staged)
        assert table.column_names == list(exporting.COLUMNS)
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
    replica = replica_of(tmp_path, log)
    start, end = sorted(rng.randrange(log.end + 1) for _ in range(2))
    committed_only = rng.random() < 0.5
    written = export(
        Range(replica, start, end), tmp_path, committed_only=committed_only, split_bytes=rng.choice([1, 300, 10**6])
    )
    assert rows_of(tmp_path, written) == expected(log, start, end, committed_only)
    assert [w.start for w in written] == sorted(w.start for w in written)


def test_large_segments_are_cut_at_index_entries_and_names_are_deterministic(tmp_path: Path) -> None:
    log = model.Log([batch([Rec(i, b"k", b"v" * 50)]) for i in range(40)])
    replica = replica_of(tmp_path, log, cuts=2)
    split_bytes = replica.segments[0].size // 4

    def plan() -> list[Split]:
        return list(
            exporting.plan_splits(Range(replica, 3, 40), committed_only=True, columns=("key",), split_bytes=split_bytes)
        )

    splits = plan()
    assert len([s for s in splits if s.segment.base_offset == 0]) > 2
    assert [(s.start, s.end) for s in splits] == [
        *zip([3, *(s.start for s in splits[1:])], [*(s.start for s in splits[1:]), 40], strict=True)
    ]
    assert [s.name for s in splits] == [s.name for s in plan()]
    assert splits[0].name.startswith(f"p-{3:020d}-{splits[0].end:020d}-")


def test_digests_add_up_over_any_cut(tmp_path: Path) -> None:
    log = model.random_log(random.Random(3), 80)
    replica = replica_of(tmp_path, log)
    whole = export(Range(replica, 0, log.end), tmp_path / "a")
    first, second = (export(Range(replica, *s), tmp_path / "b") for s in ((0, 50), (50, log.end)))
    total = sum(w.digest for w in whole) % 2**64
    assert total == sum(w.digest for w in [*first, *second]) % 2**64 != 0


# --- ranges
# ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    log = model.Log([batch([Rec(i, b"k", b"v")]) for i in range(10)])
    return replica_of(tmp_path, log, cluster_id="c", topic_id="one", last_stable_offset=8)


def span(replica: Replica, manifest: Manifest | None = None, **fields: bool) -> tuple[int, int]:
    found = exporting.plan_range(replica, manifest or Manifest(), **{**PLAIN, **fields})
    return found.start, found.end


def exported(offset: int, topic_id: str = "one", cluster_id: str = "c", epoch: int | None = None) -> Manifest:
    epochs = {} if epoch is None else {0: epoch}
    return Manifest(1, cluster_id, "r", {"t": TopicProgress(topic_id, {0: offset}, "", epochs)})


def test_a_run_goes_on_where_the_last_one_ended(replica: Replica) -> None:
    assert span(replica) == (0, 8)
    assert span(replica, committed_only=False) == (0, 10)
    assert span(replica, exported(5)) == (5, 8)
    assert span(replica, exported(9)) == (9, 9), "exported uncommitted before: nothing to do yet"


def test_deleted_offsets_are_refused_unless_allowed(replica: Replica) -> None:
    shortened = replace(replica, log_start_offset=6)
    assert span(shortened) == (6, 8)
    with pytest.raises(ExportRefused, match="offsets 5 to 5 were deleted"):
        span(shortened, exported(5))
    assert span(shortened, exported(5), allow_data_loss=True) == (6, 8)


def test_another_cluster_topic_or_a_shorter_log_are_refused(replica: Replica) -> None:
    with pytest.raises(ExportRefused, match="another --destination"):
        span(replica, exported(5, cluster_id="d"))
    with pytest.raises(ExportRefused, match="--accept-new-topic"):
        span(replica, exported(5, topic_id="two"))
    assert span(replica, exported(5, topic_id="two"), accept_new_topic=True) == (0, 8)
    with pytest.raises(ExportRefused, match="exported up to 11, and from 10 on the log has lost these records"):
        span(replica, exported(11))
    assert span(replica, exported(11), allow_data_loss=True) == (11, 11)
    with pytest.raises(ExportRefused, match="not known"):
        span(replace(replica, high_watermark=-1))


def test_right_after_a_failover_there_is_nothing_to_do_yet(replica: Replica) -> None:
    lagging = replace(replica, high_watermark=3, last_stable_offset=3, log_end_offset=10, leader_epoch=4)
    assert span(lagging, exported(9, epoch=0)) == (9, 9)
    # Nothing that is committed may go back, either.
    manifest = exported(9, epoch=0)
    following = manifest.advanced(run_id="r2", topics=exporting.progress([Range(lagging, 9, 9)], ""))
    assert following.topics["t"] == manifest.topics["t"]


def test_records_lost_after_they_were_exported_are_said(replica: Replica) -> None:
    """An unclean election cut the log at 4; it has grown beyond what was exported since."""
    cut = replace(replica, log_end_offset=10, leader_epochs=((0, 0), (2, 4)), leader_epoch=2)
    said = "exported up to 6, and from 4 on the log has lost these records, .* --allow-data-loss goes on at 6"
    with pytest.raises(ExportRefused, match=said):
        span(cut, exported(6, epoch=0))
    assert span(cut, exported(6, epoch=0), allow_data_loss=True) == (6, 8)
    assert span(cut, exported(6, epoch=2)) == (6, 8)
    assert span(cut, exported(4, epoch=0)) == (4, 8)
    assert span(cut, exported(6)) == (6, 8), "of a manifest without epochs"
    with pytest.raises(ExportRefused, match="leads it in epoch 2, and epoch 3 was exported"):
        span(cut, exported(6, epoch=3))


def test_a_range_goes_with_the_epoch_of_its_last_record(replica: Replica) -> None:
    led = replace(replica, leader_epochs=((1, 0), (4, 5)))
    topics = exporting.progress([Range(led, 0, 5)], "")
    assert topics["t"] == TopicProgress("one", {0: 5}, "", {0: 1})
    following = Manifest().advanced(run_id="a", topics=topics)
    following = following.advanced(run_id="b", topics=exporting.progress([Range(led, 5, 8)], ""))
    assert following.topics["t"] == TopicProgress("one", {0: 8}, "", {0: 4})
    assert Manifest.from_json(following.to_json()) == following


def test_unknown_columns_are_named() -> None:
    with pytest.raises(ExportRefused, match="'ofset' does not exist"):
        exporting.check_columns(["offset", "ofset"])


def test_damage_stops_an_export(tmp_path: Path, replica: Replica) -> None:
    path = Path(replica.segments[0].directory) / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(exporting.CorruptBatch, match="checksum"):
        export(Range(replica, 0, 10), tmp_path)
    assert not list((tmp_path / "_staging").rglob("*.parquet"))


# --- manifest
# ----------------------------------------------------------------------------------------------------------


def staged(store: ManifestStore, run: str, name: str, content: str) -> dict[str, Any]:
    path = Path(store.staging(run)) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"content": [content]}), path)
    size = path.stat().st_size
    return {"staged": f"_staging/{run}/{name}", "path": f"data/t/0/{name}", "rows": 1, "bytes": size}


def advance(manifest: Manifest, run: str, offset: int, files: list[dict[str, Any]], topic_id: str = "one") -> Manifest:
    return manifest.advanced(
        cluster_id="c", run_id=run, topics={"t": TopicProgress(topic_id, {0: offset})}, files=files
    )


def test_a_crash_between_commit_and_moves_is_finished_by_the_next_run(tmp_path: Path) -> None:
    store = ManifestStore(str(tmp_path))
    assert store.latest() == Manifest()
    first = advance(Manifest(), "r1", 5, [staged(store, "r1", "a.parquet", "A"), staged(store, "r1", "b.parquet", "B")])
    store.commit(first)
    (tmp_path / "data/t/0").mkdir(parents=True)
    (tmp_path / "_staging/r1/a.parquet").rename(tmp_path / "data/t/0/a.parquet")

    again = ManifestStore(str(tmp_path))
    assert again.latest() == first
    assert again.is_unpublished(again.latest())
    again.finish_moves(again.latest())
    assert not again.is_unpublished(again.latest())
    assert sorted(p.name for p in (tmp_path / "data/t/0").iterdir()) == ["a.parquet", "b.parquet"]
    assert not (tmp_path / "_staging/r1").exists()
    again.finish_moves(again.latest())


def test_of_two_writers_one_is_fenced(tmp_path: Path) -> None:
    store = ManifestStore(str(tmp_path))
    base = store.latest()
    store.commit(advance(base, "r1", 5, []))
    with pytest.raises(Fenced, match="another export"):
        store.commit(advance(base, "r2", 9, []))
    assert store.latest().topics["t"].next_offsets == {0: 5}
    store.commit(advance(store.latest(), "r3", 9, []))
    assert [store.latest().version, store.latest().topics["t"].next_offsets[0]] == [2, 9]


def test_offsets_merge_by_maximum_and_start_over_with_a_new_topic() -> None:
    manifest = advance(Manifest(), "r1", 5, [])
    other = manifest.advanced(cluster_id="c", run_id="r", topics={"t": TopicProgress("one", {0: 3, 1: 7})}, files=[])
    assert other.topics["t"].next_offsets == {0: 5, 1: 7}
    assert advance(manifest, "r2", 2, [], topic_id="two").topics["t"].next_offsets == {0: 2}
    assert Manifest.from_json(other.to_json()) == other
