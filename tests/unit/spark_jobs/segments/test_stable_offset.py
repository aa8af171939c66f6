"""A directory's last stable offset and aborted transactions: from what there is of snapshots, indexes and markers."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logyard.broker.errors import LogyardError
from logyard.broker.log.producers import ProducerEntry, encode_snapshot
from logyard.spark_jobs.export.manifest import Manifest
from logyard.spark_jobs.export.offsets import plan_range
from logyard.spark_jobs.segments.replicas import of_partition_directory
from logyard.spark_jobs.segments.splits import COLUMNS, plan_splits, split_rows
from logyard.spark_jobs.segments.stable_offset import settled
from tests.support import compaction_model as model
from tests.support.batches import CONTROL, TRANSACTIONAL, Batch, Rec, batch, marker
from tests.support.old_logs import old
from tests.support.segment_files import write_partition, write_txn_indexes

TX = TRANSACTIONAL


def data(base: int, producer: int, count: int = 2) -> Batch:
    records = [Rec(base + i, b"k%d" % i, b"of %d" % producer) for i in range(count)]
    return batch(records, flags=TX, producer_id=producer, producer_epoch=0, sequence=0)


def plain(base: int, count: int = 2) -> Batch:
    return batch([Rec(base + i, b"p", b"plain") for i in range(count)])


def open_at(batches: list[Batch], offset: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for b in batches:
        if b.last < offset and b.flags & TX:
            if b.flags & CONTROL:
                found.pop(b.producer_id, None)
            else:
                found.setdefault(b.producer_id, b.base)
    return found


def snapshot(directory: Path, offset: int, open_from: dict[int, int]) -> Path:
    path = directory / f"{offset:020d}.snapshot"
    path.write_bytes(encode_snapshot(ProducerEntry(p, 0, txn_first_offset=first) for p, first in open_from.items()))
    return path


class Place:
    """Producer 1 commits 0-1 (marker 2), aborts 5-6 (11); 2 is open from 9 on; 3 aborts 14-15 (16), 4 is open from 17.

    Segments begin at 0, 7 and 14, each with its producer snapshot; the log ends at 21.
    """

    def __init__(self, root: Path, **marks: Any) -> None:
        self.segments = [
            [data(0, 1), marker(2, 1, commit=True), plain(3), data(5, 1)],
            [plain(7), data(9, 2), marker(11, 1, commit=False), plain(12)],
            [data(14, 3), marker(16, 3, commit=False), data(17, 4), plain(19)],
        ]
        self.batches = [b for s in self.segments for b in s]
        self.path = write_partition(root / "log", "t-0", self.segments, **marks)
        write_txn_indexes(self.path, [(1, 5, 11, 9)])
        for base in (7, 14):
            snapshot(self.path, base, open_at(self.batches, base))

    def settled(self) -> Any:
        return settled(of_partition_directory(str(self.path)))

    def rows(self) -> list[int]:
        wants = {"committed_only": True, "allow_data_loss": False, "accept_new_topic": False}
        span = plan_range(self.settled(), Manifest(), **wants)
        splits = plan_splits(span, committed_only=True, columns=COLUMNS)
        return [o for s in splits for part, _ in split_rows(s) for o in part.column("offset").to_pylist()]

    def index(self, base: int) -> Path:
        return self.path / f"{base:020d}.txnindex"

    def snapshot(self, base: int) -> Path:
        return self.path / f"{base:020d}.snapshot"


CASES: dict[str, Callable[[Place], Any]] = {
    "as it is": lambda p: None,
    "no snapshot": lambda p: [p.snapshot(b).unlink() for b in (7, 14)],
    "the latest snapshot is noise": lambda p: p.snapshot(14).write_bytes(os.urandom(50)),
    "the latest snapshot is empty": lambda p: p.snapshot(14).write_bytes(b""),
    "the latest snapshot is gone": lambda p: p.snapshot(14).unlink(),
    "all snapshots are cut": lambda p: [os.truncate(p.snapshot(b), 9) for b in (7, 14)],
    "a snapshot beyond the log": lambda p: snapshot(p.path, 900, {}),
    "a snapshot at the end": lambda p: snapshot(p.path, 21, open_at(p.batches, 21)),
    "an old snapshot below the log": lambda p: snapshot(p.path, 0, {77: 0}),
    "a transaction index cut within an entry": lambda p: os.truncate(p.index(7), 20),
    "a transaction index of another version": lambda p: p.index(7).write_bytes(b"\0\7" + bytes(32)),
    "a damaged index and no snapshot": lambda p: [os.truncate(p.index(7), 20), p.snapshot(7).unlink()],
    "zeros behind the log": lambda p: os.truncate(log := p.path / f"{14:020d}.log", log.stat().st_size + 500),
    "the indexes of the active segment are there": lambda p: p.index(14).write_bytes(b""),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_end_where_a_transaction_is_open(name: str, tmp_path: Path) -> None:
    place = Place(tmp_path)
    CASES[name](place)
    found = place.settled()
    assert (found.last_stable_offset, found.high_watermark, found.log_end_offset) == (9, 21, 21)
    assert (1, 5, 11) in [a[:3] for a in found.aborted]
    assert place.rows() == [0, 1, 3, 4, 7, 8]


@pytest.mark.parametrize(
    ("high_watermark", "stable"),
    [(0, 0), (2, 0), (3, 3), (5, 5), (7, 5), (9, 5), (11, 5), (12, 9), (14, 9), (16, 9), (17, 9), (19, 9), (21, 9)],
)
def test_a_marker_beyond_the_high_watermark_ends_nothing(high_watermark: int, stable: int, tmp_path: Path) -> None:
    place = Place(tmp_path, high_watermark=high_watermark)
    assert place.settled().last_stable_offset == stable
    assert max(place.rows(), default=-1) < stable


def test_what_the_active_segment_aborted_is_known_without_its_index(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert (3, 14, 16) in [a[:3] for a in place.settled().aborted]


def test_nothing_is_open_in_a_log_without_transactions(tmp_path: Path) -> None:
    path = write_partition(tmp_path / "log", "t-0", [[old([Rec(0, b"a", b"b"), Rec(1, b"a", b"b")])], [plain(2)]])
    found = settled(of_partition_directory(str(path)))
    assert (found.last_stable_offset, found.high_watermark, found.aborted) == (4, 4, ())


def test_a_log_that_ends_below_its_high_watermark_ends_there(tmp_path: Path) -> None:
    """A copy may have an older log than checkpoint; whoever goes on from here later misses nothing."""
    place = Place(tmp_path, high_watermark=500)
    assert place.settled().high_watermark == 21
    os.truncate(place.path / f"{14:020d}.log", len(place.segments[2][0].encode()))
    assert place.settled().high_watermark == 16


def test_a_log_torn_below_its_high_watermark_is_damaged(tmp_path: Path) -> None:
    path = write_partition(tmp_path / "log", "t-0", [[plain(0)], [plain(2), plain(4)]])
    log = path / f"{2:020d}.log"
    os.truncate(log, log.stat().st_size - 3)
    found = settled(of_partition_directory(str(path)))
    assert found.high_watermark == 6
    wants = {"committed_only": True, "allow_data_loss": False, "accept_new_topic": False}
    span = plan_range(found, Manifest(), **wants)
    with pytest.raises(LogyardError, match=r"t-0, segment 2 .*\(offset 4\): the file ends inside it"):
        [list(split_rows(s)) for s in plan_splits(span, committed_only=True, columns=COLUMNS)]


@pytest.mark.parametrize("number", [0, 1])
def test_a_damaged_batch_of_a_transaction_is_named(number: int, tmp_path: Path) -> None:
    place = Place(tmp_path)
    log = place.path / f"{14:020d}.log"
    at = sum(len(b.encode()) for b in place.segments[2][:number])
    content = bytearray(log.read_bytes())
    content[at + 65] ^= 1
    log.write_bytes(content)
    with pytest.raises(LogyardError, match=rf"t-0, segment 14 .*position {at} \(offset {(14, 16)[number]}\)"):
        place.settled()


@pytest.mark.parametrize("seed", range(30))
def test_random_histories_with_random_loss_of_helpers(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    log = model.random_log(rng, 60)
    cuts = sorted({0, *(rng.randrange(len(log.batches)) for _ in range(4))})
    segments = [log.batches[a:b] for a, b in zip(cuts, [*cuts[1:], None], strict=True)]
    high_watermark = rng.choice([b.base for b in log.batches] + [log.end] * 20)
    path = write_partition(tmp_path / "log", "t-0", segments, high_watermark=high_watermark)
    write_txn_indexes(path, log.aborted_index())
    for segment in segments[1:]:
        if rng.random() < 0.7:
            made = snapshot(path, segment[0].base, open_at(log.batches, segment[0].base))
            if rng.random() < 0.3:
                made.write_bytes(os.urandom(rng.randrange(80)))
    for index in path.glob("*.txnindex"):
        if rng.random() < 0.3:
            os.truncate(index, index.stat().st_size - rng.randrange(1, 30))
    found = settled(of_partition_directory(str(path)))
    assert found.last_stable_offset == min([high_watermark, *open_at(log.batches, high_watermark).values()])
    below = {a[:3] for a in log.aborted_index() if a[0] >= 0 and a[2] < found.last_stable_offset}
    assert below <= {a[:3] for a in found.aborted}
    assert {a[:3] for a in found.aborted} <= {a[:3] for a in log.aborted_index()}
