"""An export by pieces: each is a version, all of them are everything, and a run that dies keeps what it committed."""

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logyard.spark_jobs.errors import JobFailed
from logyard.spark_jobs.export import job
from logyard.spark_jobs.export import pieces as pieces_module
from logyard.spark_jobs.export.failures import PartitionsFailed
from logyard.spark_jobs.export.files import Output
from logyard.spark_jobs.export.manifest_store import ManifestStore
from logyard.spark_jobs.export.modes import Upserting
from logyard.spark_jobs.export.pieces import Pieces
from logyard.spark_jobs.segments.files import SegmentFile
from logyard.spark_jobs.segments.replicas import Replica, of_partition_directory
from logyard.spark_jobs.segments.splits import Range, Split
from tests.support.batches import Rec, batch
from tests.support.export_runs import Flights, pairs
from tests.support.here_workers import HereWorkers
from tests.support.segment_files import write_partition

# Of the logs here, a piece is a segment or two.
SMALL = ("--commit-mib", "1", "--split-mib", "1")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "MEBIBYTE", 400)


@pytest.fixture
def small_upserts(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the table is by now (a Parquet file is larger than any log here)."""
    monkeypatch.setattr(Upserting, "piece_bytes", lambda _self, wanted, _manifest: wanted)


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Replica:
    root = tmp_path_factory.mktemp("pieces")
    return of_partition_directory(str(write_partition(root, "t-0", [[batch([Rec(0, b"k", b"v")])]])))


def splits(span: Range, rng: random.Random) -> list[Split]:
    """Splits of a range with holes where nothing is (offsets of empty segments)."""
    segment = SegmentFile("t", span.replica.partition, 0, 0, 10**6, {}, "")
    found, at = [], span.start
    while at < span.end:
        end = min(at + rng.randrange(1, 9), span.end)
        if rng.random() < 0.9:
            found.append(Split(segment, 0, rng.randrange(1, 100), at, end, (), True, (), "hash"))
        at = end
    return found


@pytest.mark.parametrize("seed", range(40))
def test_pieces_are_all_of_it_in_order_and_bounded(seed: int, replica: Replica) -> None:
    rng = random.Random(seed)
    spans = []
    for partition in range(rng.randrange(1, 6)):
        start = rng.randrange(50)
        spans.append(Range(replace(replica, partition=partition), start, start + rng.choice([0, 0, rng.randrange(80)])))
    planned = {span.replica.partition: splits(span, rng) for span in spans}

    def splits_of(span: Range) -> Iterator[Split]:
        return iter(planned[span.replica.partition])

    pieces, limit = Pieces(spans, splits_of), rng.choice([1, 50, 300, 10**9])
    taken: dict[int, list[Split]] = {span.replica.partition: [] for span in spans}
    at = {span.replica.partition: span.start for span in spans}
    while (piece := pieces.take(limit)) is not None:
        assert piece.offsets > 0, "each piece makes progress"
        sizes = sorted(s.size for s in piece.splits)
        assert sum(sizes) - sizes[-1] < limit if sizes else limit
        for span in piece.ranges:
            partition = span.replica.partition
            mine = [s for s in piece.splits if s.segment.partition == partition]
            assert span.start == at[partition]
            assert all(span.start <= s.start and s.end <= span.end for s in mine)
            taken[partition] += mine
            at[partition] = span.end
    assert taken == planned
    assert at == {span.replica.partition: span.end for span in spans}
    assert pieces.offsets_left == 0


def test_a_piece_takes_of_every_partition_about_as_much(replica: Replica) -> None:
    spans = [Range(replace(replica, partition=p), 0, 1000) for p in range(4)]

    def splits_of(span: Range) -> Iterator[Split]:
        segment = SegmentFile("t", span.replica.partition, 0, 0, 10**6, {}, "")
        return (Split(segment, 0, 10, at, at + 10, (), True, (), "hash") for at in range(0, 1000, 10))

    piece = Pieces(spans, splits_of).take(400)
    assert piece is not None
    assert [span.end for span in piece.ranges] == [100] * 4


def test_a_piece_costs_what_is_in_it(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that a piece takes nothing of keeps the range it has: 300 partitions in 300 pieces are not 90,000."""
    made = 0

    def counted(*fields: Any) -> Range:
        nonlocal made
        made += 1
        return Range(*fields)

    monkeypatch.setattr(pieces_module, "Range", counted)
    spans = [Range(replace(replica, partition=p), 0, 1) for p in range(300)]
    pieces = Pieces(spans, lambda span: iter(splits(span, random.Random(1))))
    taken = 0
    while (piece := pieces.take(1)) is not None:
        taken += len(piece.splits)
        assert len(piece.ranges) == 300
    assert taken == 300
    assert made <= 3 * 300


@pytest.mark.usefixtures("small")
def test_each_piece_is_a_version_and_all_of_them_are_everything(tmp_path: Path) -> None:
    flights = Flights(tmp_path)
    flights.grow(pairs(96))
    said = flights.run(*SMALL)
    assert said["versions"] > 3
    assert (said["rows"], said["offsets"]["t-0"]) == (96, {"start": 0, "end": 96, "rows": 96})
    assert flights.offsets() == list(range(96))
    store = ManifestStore(str(flights.target))
    assert store.latest().version >= said["versions"]
    whole = Flights(tmp_path / "whole")
    whole.grow(pairs(96))
    assert (whole.run()["checksum"], whole.rows()) == (said["checksum"], flights.rows())
    assert flights.run(*SMALL)["rows"] == 0


@pytest.mark.usefixtures("small")
def test_a_run_that_dies_keeps_what_it_committed(tmp_path: Path) -> None:
    """As a DAG run's time-out ends it: in its third piece."""

    class TimedOut(BaseException):
        pass

    class Dying(HereWorkers):
        pieces = 0

        def each(self, what: str, *rest: Any) -> list[Any]:
            self.pieces += what == "export"
            if self.pieces == 3:
                raise TimedOut
            return super().each(what, *rest)

    flights = Flights(tmp_path, Dying())
    flights.grow(pairs(96))
    with pytest.raises(TimedOut):
        flights.run(*SMALL)
    (kept,) = ManifestStore(str(flights.target)).latest().topics["t"].next_offsets.values()
    assert 0 < kept < 96
    assert flights.offsets() == list(range(kept))
    said = Flights(tmp_path).again(flights).run()
    assert said["offsets"]["t-0"]["start"] == kept
    assert flights.offsets() == list(range(96))


@pytest.mark.usefixtures("small_upserts")
def test_an_upsert_by_pieces(tmp_path: Path) -> None:
    flights, whole = Flights(tmp_path / "a"), Flights(tmp_path / "b")
    rng = random.Random(5)
    for _ in range(2):
        news = [(b"k%d" % rng.randrange(30), rng.choice([b"v%d" % n, None, b"w"])) for n in range(96)]
        flights.grow(news)
        whole.grow(news)
        said = flights.run("--mode", "upsert", *SMALL, "--bucket-mib", "1")
        whole.run("--mode", "upsert")
        assert said["versions"] > 1
        assert flights.rows() == whole.rows() != []


@pytest.mark.usefixtures("small")
def test_a_piece_of_an_upsert_is_as_large_as_its_table(tmp_path: Path) -> None:
    """Each piece may write all buckets again: they must not come ever more often as the table grows."""
    flights = Flights(tmp_path)
    flights.grow([(b"k%d" % n, b"v" * 100) for n in range(400)])
    store = ManifestStore(str(flights.target))
    assert flights.run("--mode", "upsert", *SMALL)["versions"] > 1
    (size,) = (int(file["bytes"]) for file in store.live_files())
    writing = Upserting(store, HereWorkers(), Output(("key",)), 1)
    assert writing.piece_bytes(400, store.latest()) == size > 400
    assert writing.piece_bytes(10**9, store.latest()) == 10**9


@pytest.mark.usefixtures("small_upserts")
def test_a_topic_made_again_is_told_from_the_first_piece_on(tmp_path: Path) -> None:
    """A run that dies after its first piece leaves the new topic's id: the next one needs no option."""

    class Dying(HereWorkers):
        pieces = 0

        def each(self, what: str, *rest: Any) -> list[Any]:
            self.pieces += what == "export"
            if self.pieces == 2:
                raise KeyboardInterrupt
            return super().each(what, *rest)

    flights = Flights(tmp_path)
    flights.grow(pairs(24))
    flights.run("--mode", "upsert")
    flights.records = []
    flights.grow([(b"new%d" % n, b"v") for n in range(60)])
    for other in (flights, dying := Flights(tmp_path, Dying()).again(flights)):
        (other.log / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg")
    with pytest.raises(KeyboardInterrupt):
        dying.run("--mode", "upsert", "--accept-new-topic", *SMALL)
    assert 0 < len(flights.rows()) < 60
    assert all(row["key"].startswith(b"new") for row in flights.rows())
    flights.run("--mode", "upsert")
    assert flights.offsets() == list(range(60))


@pytest.mark.usefixtures("small")
def test_merges_go_by_pieces_too(tmp_path: Path) -> None:
    flights = Flights(tmp_path)
    flights.grow(pairs(200))
    flights.run("--target-file-mib", "0", *SMALL)
    before = ManifestStore(str(flights.target)).latest().version
    said = flights.run("--target-file-mib", "40", "--merge-files", "2", *SMALL)
    after = ManifestStore(str(flights.target)).latest().version
    assert said["merged_files"] > 4
    assert after - before > 1
    assert flights.offsets() == list(range(200))


def test_a_topic_that_is_not_in_the_directory_is_named(tmp_path: Path) -> None:
    flights = Flights(tmp_path)
    flights.grow(pairs(4))
    with pytest.raises(JobFailed, match="no partition directory of topic u was found"):
        flights.run("--topic", "t", "--topic", "u")
    shutil.rmtree(flights.log / "t-0")
    with pytest.raises(JobFailed, match="no partition directory was found"):
        flights.run()


def test_ranges_that_cannot_be_planned_are_named_together(replica: Replica) -> None:
    """Else each of thousands would have all others planned anew."""
    ranges = [Range(replace(replica, partition=n), 0, 5) for n in range(6)]
    asked: list[int] = []

    def splits_of(span: Range) -> Iterator[Split]:
        asked.append(span.replica.partition)
        if span.replica.partition % 2:
            raise PartitionsFailed({span.replica.tp: "its index cannot be read"})
        yield from splits(span, random.Random(1))

    with pytest.raises(PartitionsFailed) as failed:
        Pieces(ranges, splits_of)
    assert sorted(tp.partition for tp in failed.value.reasons) == [1, 3, 5]
    assert asked == list(range(6))


def test_a_partition_whose_plan_breaks_off_ends_there_and_the_others_go_on(replica: Replica) -> None:
    spans = [Range(replace(replica, partition=n), 0, 40) for n in range(4)]
    asked: list[int] = []

    def splits_of(span: Range) -> Iterator[Split]:
        asked.append(span.replica.partition)
        segment = SegmentFile("t", span.replica.partition, 0, 0, 10**6, {}, "")
        for at in range(0, 40, 10):
            if (span.replica.partition, at) == (2, 20):
                raise PartitionsFailed({span.replica.tp: "its index cannot be read"})
            yield Split(segment, 0, 10, at, at + 10, (), True, (), "hash")

    pieces = Pieces(spans, splits_of)
    reached: dict[int, int] = {}
    while (piece := pieces.take(30)) is not None:
        assert piece.offsets > 0
        reached |= {span.replica.partition: span.end for span in piece.ranges}
    assert (reached, pieces.offsets_left) == ({0: 40, 1: 40, 2: 20, 3: 40}, 0)
    assert [tp.partition for tp in pieces.broken] == [2]
    assert asked == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(40))
def test_pieces_that_are_taken_back_come_again_without_who_failed(seed: int, replica: Replica) -> None:
    rng = random.Random(seed)
    spans = [Range(replace(replica, partition=n), 0, rng.randrange(60)) for n in range(5)]
    planned = {span.replica.partition: splits(span, rng) for span in spans}
    asked: list[int] = []

    def splits_of(span: Range) -> Iterator[Split]:
        asked.append(span.replica.partition)
        return iter(planned[span.replica.partition])

    pieces, failed = Pieces(spans, splits_of), set[int]()
    taken: dict[int, list[Split]] = {span.replica.partition: [] for span in spans}
    at = dict.fromkeys(taken, 0)
    while (piece := pieces.take(rng.choice([1, 50, 300]))) is not None:
        there = sorted({split.segment.partition for split in piece.splits})
        if there and rng.random() < 0.3:
            gone = {rng.choice(there)} if rng.random() < 0.5 else set[int]()
            failed |= gone
            pieces.take_back({replace(replica, partition=n).tp for n in gone})
            continue
        for span in piece.ranges:
            partition = span.replica.partition
            assert partition not in failed
            assert span.start == at[partition]
            taken[partition] += [split for split in piece.splits if split.segment.partition == partition]
            at[partition] = span.end
    whole = [span.replica.partition for span in spans if span.replica.partition not in failed]
    assert {n: taken[n] for n in whole} == {n: planned[n] for n in whole}
    assert {n: at[n] for n in whole} == {
        span.replica.partition: span.end for span in spans if span.replica.partition in whole
    }
    assert pieces.offsets_left == 0
    assert asked == sorted(span.replica.partition for span in spans if span.start < span.end)
