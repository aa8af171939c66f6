"""Damage of every kind to one replica's directory, and exactly what the audit accuses: the file that is wrong, once."""

import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from logyard.broker.log.producers import ProducerEntry, encode_snapshot
from logyard.spark_jobs.audit.findings import BAD, WARN, Finding
from logyard.spark_jobs.audit.partition import audit_bin, judge_rows
from logyard.spark_jobs.audit.replica_state import damaged_files
from logyard.spark_jobs.audit.segment import SegmentAudit
from logyard.spark_jobs.segments.replicas import Replica, of_partition_directory
from tests.support.batches import TRANSACTIONAL, Batch, Rec, batch, marker
from tests.support.old_logs import AnyBatch, old
from tests.support.segment_files import write_partition, write_txn_indexes


def data(at: int, producer: int = -1, sequence: int = -1, epoch: int = 0) -> Batch:
    records = [Rec(at + n, b"k%d" % n, b"v" * 40, 1000 + 10 * at + n) for n in range(2)]
    flags = TRANSACTIONAL if producer >= 0 else 0
    made = batch(records, flags=flags, producer_id=producer, producer_epoch=int(producer < 0) - 1, sequence=sequence)
    return replace(made, epoch=epoch, producer_epoch=0 if producer >= 0 else -1)


def end(at: int, producer: int, *, commit: bool, epoch: int = 0) -> Batch:
    return replace(marker(at, producer, commit=commit, timestamp=1000 + 10 * at), epoch=epoch)


# Segments at 0, 14 and 28. Producer 7 writes 4-5, aborts at 8; writes 16-17 and 18-19, aborts at 20; epoch 3 from 24.
SEGMENTS: list[list[AnyBatch]] = [
    [data(0), data(2), data(4, 7, 0), data(6), end(8, 7, commit=False), data(9), data(11), end(13, 9, commit=True)],
    [
        *(data(14), data(16, 7, 2), data(18, 7, 4), end(20, 7, commit=False), end(21, 9, commit=True)),
        *(data(22), data(24, epoch=3), data(26, epoch=3)),
    ],
    [data(28, epoch=3), data(30, epoch=3)],
]
ABORTED = [(7, 4, 8, 9), (7, 16, 20, 21)]


class Place:
    def __init__(self, root: Path) -> None:
        self.path = write_partition(root, "t-0", SEGMENTS, epochs=[(0, 0), (3, 24)])
        write_txn_indexes(self.path, ABORTED)
        for base in (14, 28):
            (self.path / f"{base:020d}.snapshot").write_bytes(encode_snapshot([ProducerEntry(7, 0)]))

    def file(self, base: int, kind: str = "log") -> Path:
        return self.path / f"{base:020d}.{kind}"

    def at(self, base: int, number: int) -> int:
        """The position of the batch of that number in the segment."""
        return sum(len(b.encode()) for b in SEGMENTS[base // 14][:number])

    def patch(self, base: int, number: int, byte: int, put: bytes) -> None:
        with self.file(base).open("r+b") as file:
            file.seek(self.at(base, number) + byte)
            file.write(put)

    def cut(self, base: int, size: int, kind: str = "log") -> None:
        os.truncate(self.file(base, kind), size)

    def lose(self, base: int, number: int) -> None:
        """Cut the segment before the batch of that number."""
        self.cut(base, self.at(base, number))

    def entry(self, base: int, kind: str, number: int, form: str, *values: int) -> None:
        with self.file(base, kind).open("r+b") as file:
            file.seek(number * struct.calcsize(form))
            file.write(struct.pack(form, *values))

    def entries(self, base: int, kind: str, form: str) -> list[tuple[int, ...]]:
        return list(struct.iter_unpack(form, self.file(base, kind).read_bytes()))


def audit(place: Place, **fields: Any) -> list[Finding]:
    replica: Replica = replace(of_partition_directory(str(place.path), 1, "delete"), **fields)
    found = list(damaged_files(replica))
    work = [SegmentAudit(s, True, replica.leader_epochs, False, -1) for s in replica.segments]
    return found + judge_rows([replica], [rows for _, rows in audit_bin(work)]).findings


def accused(findings: list[Finding]) -> list[tuple[str, str, str]]:
    names = [Path(f.file).name for f in findings]
    return sorted((f.level, f.check, n.lstrip("0") if n[0] == "0" else n) for f, n in zip(findings, names, strict=True))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


LATE = struct.pack(">q", 10**15)
Case = tuple[Callable[[Place], Any], list[tuple[str, str, str]]]

CASES: dict[str, Case] = {
    "nothing is wrong": (lambda p: None, []),
    # A wrong checksum: no field of that header accuses another file.
    "a flipped record": (lambda p: p.patch(0, 3, 70, b"\xff"), [(BAD, "crc", ".log")]),
    "a flipped checksum": (lambda p: p.patch(0, 3, 18, b"\xff"), [(BAD, "crc", ".log")]),
    "a wild latest timestamp": (lambda p: p.patch(0, 3, 35, LATE), [(BAD, "crc", ".log")]),
    "a wild latest timestamp in the first batch": (lambda p: p.patch(14, 0, 35, LATE), [(BAD, "crc", "14.log")]),
    "a wild latest timestamp in the last batch": (lambda p: p.patch(14, 7, 35, LATE), [(BAD, "crc", "14.log")]),
    "a latest timestamp from before": (lambda p: p.patch(0, 6, 35, bytes(8)), [(BAD, "crc", ".log")]),
    "a wild first timestamp": (lambda p: p.patch(0, 3, 27, LATE), [(BAD, "crc", ".log")]),
    "a last offset far behind": (lambda p: p.patch(0, 3, 23, b"\x7f"), [(BAD, "crc", ".log")]),
    "a last offset below the first": (lambda p: p.patch(0, 3, 23, b"\xff"), [(BAD, "crc", ".log")]),
    "a last offset far behind, in the last batch": (lambda p: p.patch(0, 7, 23, b"\x7f"), [(BAD, "crc", ".log")]),
    "a last offset far behind, at the end of the log": (
        lambda p: p.patch(28, 1, 23, b"\x7f"),
        [(BAD, "crc", "28.log")],
    ),
    "another producer": (lambda p: p.patch(14, 1, 43, LATE), [(BAD, "crc", "14.log")]),
    "another sequence": (lambda p: p.patch(14, 1, 53, b"\x01"), [(BAD, "crc", "14.log")]),
    "a count of many": (lambda p: p.patch(0, 3, 57, b"\x01"), [(BAD, "crc", ".log")]),
    "a count of none": (lambda p: p.patch(0, 3, 57, bytes(4)), [(BAD, "crc", ".log")]),
    "data that says it is a marker": (lambda p: p.patch(0, 3, 22, b"\x30"), [(BAD, "crc", ".log")]),
    "an abort marker that says it is data": (lambda p: p.patch(14, 3, 22, b"\x10"), [(BAD, "crc", "14.log")]),
    "an abort marker that is damaged": (lambda p: p.patch(0, 4, 67, b"\xff"), [(BAD, "crc", ".log")]),
    "the first batch of an aborted transaction": (lambda p: p.patch(14, 1, 70, b"\xff"), [(BAD, "crc", "14.log")]),
    "the batch that a leader epoch begins with": (lambda p: p.patch(14, 6, 70, b"\xff"), [(BAD, "crc", "14.log")]),
    "the first batch of a segment": (lambda p: p.patch(14, 0, 70, b"\xff"), [(BAD, "crc", "14.log")]),
    "the last batch of a segment": (lambda p: p.patch(0, 7, 66, b"\xff"), [(BAD, "crc", ".log")]),
    "two of them": (lambda p: [p.patch(0, n, 66, b"\xff") for n in (2, 6)], [(BAD, "crc", ".log")] * 2),
    "all of them": (lambda p: [p.patch(0, n, 66, b"\xff") for n in range(8)], [(BAD, "crc", ".log")] * 8),
    # Framing: nothing behind it can be said, and nothing is.
    "a length of nothing": (lambda p: p.patch(0, 3, 8, bytes(4)), [(BAD, "framing", ".log")]),
    "a length beyond the file": (lambda p: p.patch(14, 2, 8, b"\x60"), [(BAD, "framing", "14.log")]),
    "zeros from a batch on": (lambda p: p.patch(14, 3, 0, bytes(400)), [(BAD, "framing", "14.log")]),
    "the first batch has no length": (lambda p: p.patch(0, 0, 8, bytes(4)), [(BAD, "framing", ".log")]),
    "a torn tail": (lambda p: p.cut(0, p.at(0, 7) + 30), [(BAD, "framing", ".log")]),
    "a torn batch in the middle": (lambda p: p.cut(14, p.at(14, 4) + 30), [(BAD, "framing", "14.log")]),
    "a torn tail at the end of the log": (lambda p: p.cut(28, p.at(28, 1) + 30), [(BAD, "framing", "28.log")]),
    # A closed segment that lost its tail, at the end of a batch: the loss is the log's.
    "a lost tail that the index knows": (lambda p: p.lose(0, 4), [(BAD, "tail", ".log")]),
    "a lost tail of one batch": (lambda p: p.lose(14, 7), [(BAD, "tail", "14.log")]),
    "a lost tail without an index": (
        lambda p: [p.lose(0, 4), [p.file(0, k).write_bytes(b"") for k in ("index", "timeindex", "txnindex")]],
        [(BAD, "gap", ".log")],
    ),
    "a segment that lost all": (lambda p: p.cut(14, 0), [(BAD, "tail", "14.log")]),
    "a segment that is gone": (
        lambda p: [p.file(14, kind).unlink() for kind in ("log", "index", "timeindex", "txnindex", "snapshot")],
        [(BAD, "gap", ".log")],
    ),
    # Files that are gone.
    "no offset index": (lambda p: p.file(0, "index").unlink(), [(BAD, "index", ".index")]),
    "no time index": (lambda p: p.file(14, "timeindex").unlink(), [(WARN, "timeindex", "14.timeindex")]),
    "no transaction index": (lambda p: p.file(14, "txnindex").unlink(), [(BAD, "txnindex", "14.txnindex")]),
    "no snapshot": (lambda p: p.file(14, "snapshot").unlink(), []),
    # Indexes that lie.
    "an index entry between batches": (lambda p: p.entry(0, "index", 0, ">ii", 3, 140), [(BAD, "index", ".index")]),
    "an index entry to another batch": (
        lambda p: p.entry(0, "index", 0, ">ii", 1, p.at(0, 1)),
        [(BAD, "index", ".index")],
    ),
    "an index entry inside a batch's offsets": (
        lambda p: p.entry(0, "index", 0, ">ii", 2, p.entries(0, "index", ">ii")[0][1]),
        [(BAD, "index", ".index")],
    ),
    "a last index entry beyond the file": (
        lambda p: p.entry(0, "index", len(p.entries(0, "index", ">ii")) - 1, ">ii", 13, 10**6),
        [(BAD, "index", ".index")],
    ),
    "index entries that fall": (lambda p: p.entry(0, "index", 1, ">ii", 0, 0), [(BAD, "index", ".index")]),
    "half an index entry": (
        lambda p: p.cut(0, p.file(0, "index").stat().st_size - 3, "index"),
        [(BAD, "index", ".index")],
    ),
    "a time entry that skips": (
        lambda p: p.entry(0, "timeindex", 0, ">qi", 1001, 11),
        [(BAD, "timeindex", ".timeindex")],
    ),
    "a time entry behind the end": (
        lambda p: p.entry(0, "timeindex", len(p.entries(0, "timeindex", ">qi")) - 1, ">qi", 5000, 99),
        [(BAD, "timeindex", ".timeindex")],
    ),
    "an aborted transaction too many": (
        lambda p: p.file(0, "txnindex").write_bytes(
            p.file(0, "txnindex").read_bytes() + struct.pack(">hqqqq", 0, 7, 9, 11, 12)
        ),
        [(BAD, "txnindex", ".txnindex")],
    ),
    "an aborted transaction of another producer": (
        lambda p: p.entry(0, "txnindex", 0, ">hqqqq", 0, 8, 4, 8, 9),
        [(BAD, "txnindex", ".txnindex")],
    ),
    "a damaged snapshot": (
        lambda p: p.file(14, "snapshot").write_bytes(os.urandom(40)),
        [(BAD, "snapshot", "14.snapshot")],
    ),
    "an epoch that begins inside a batch": (
        lambda p: (p.path / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 25\n"),
        [(BAD, "epochs", "14.log"), (BAD, "epochs", "leader-epoch-checkpoint")],
    ),
    # Two things at once are two findings.
    "a damaged batch, and an index that lies elsewhere": (
        lambda p: [p.patch(14, 2, 70, b"\xff"), p.entry(0, "index", 0, ">ii", 3, 140)],
        [(BAD, "crc", "14.log"), (BAD, "index", ".index")],
    ),
    "damaged framing, and an index that lies before it": (
        lambda p: [p.patch(14, 6, 8, bytes(4)), p.entry(14, "index", 0, ">ii", 3, 140)],
        [(BAD, "framing", "14.log"), (BAD, "index", "14.index")],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_who_is_accused(name: str, place: Place) -> None:
    damage, expected = CASES[name]
    damage(place)
    found = audit(place)
    assert accused(found) == sorted(expected), [f.message for f in found]


def test_there_are_enough_entries_for_all_this(place: Place) -> None:
    assert audit(place) == []
    for base in (0, 14):
        assert len(place.entries(base, "index", ">ii")) >= 3
        assert len(place.entries(base, "timeindex", ">qi")) >= 3


def test_a_lost_tail_says_what_is_lost(place: Place) -> None:
    entries = place.entries(0, "index", ">ii")
    place.lose(0, 4)
    (found,) = audit(place)
    size = place.file(0).stat().st_size
    offset, position = next(e for e in entries if e[1] >= size)
    assert (found.position, found.offset) == (size, 8)
    assert found.message == (
        f"it ends at {size} with offset 7, its index knows a batch at {position} (offset {offset}): its tail was lost"
    )


@pytest.mark.parametrize("clean_offset", [-1, 14, 28])
def test_a_lost_tail_is_found_in_a_cleaned_log_too(clean_offset: int, place: Place) -> None:
    place.lose(14, 4)
    assert accused(audit(place, clean_offset=clean_offset)) == [(BAD, "tail", "14.log")]


def test_a_wrong_checksum_is_reported_where_it_is(place: Place) -> None:
    place.patch(14, 2, 35, LATE)
    (found,) = audit(place)
    assert (found.position, found.offset, found.replica) == (place.at(14, 2), 18, 1)


def test_damage_of_one_replica_is_no_divergence_of_both(tmp_path: Path) -> None:
    one, two = Place(tmp_path / "1"), Place(tmp_path / "2")
    one.patch(0, 3, 23, b"\x7f")
    two.patch(14, 3, 8, bytes(4))
    replicas = [replace(of_partition_directory(str(p.path), n, "delete"), broker_id=n) for n, p in ((1, one), (2, two))]
    work = [SegmentAudit(s, True, r.leader_epochs, False, -1) for r in replicas for s in r.segments]
    found = judge_rows(replicas, [rows for _, rows in audit_bin(work)]).findings
    assert [(f.check, f.replica) for f in found] == [("crc", 1), ("framing", 2)]


def test_a_segment_whose_first_bytes_are_damaged_hides_nothing_before_it(tmp_path: Path) -> None:
    one, two = Place(tmp_path / "1"), Place(tmp_path / "2")
    with two.file(0).open("r+b") as file:  # sound, and not the same as on the other replica
        file.write(replace(data(0), records=(Rec(0, b"k0", b"w" * 40, 1000), Rec(1, b"k1", b"v" * 40, 1001))).encode())
    two.patch(14, 0, 8, bytes(4))
    replicas = [replace(of_partition_directory(str(p.path), n, "delete"), broker_id=n) for n, p in ((1, one), (2, two))]
    work = [SegmentAudit(s, True, r.leader_epochs, False, -1) for r in replicas for s in r.segments]
    found = judge_rows(replicas, [rows for _, rows in audit_bin(work)]).findings
    assert [(f.check, f.replica, f.offset) for f in found] == [("framing", 2, 14), ("replicas", 1, 0)]


def test_old_messages_are_accused_alike(tmp_path: Path) -> None:
    log: list[AnyBatch] = [
        old([Rec(2 * n + i, b"k", b"v" * 30, 1000 + n) for i in range(2)], n % 2, 1) for n in range(12)
    ]
    path = write_partition(tmp_path, "t-0", [log[:8], log[8:]])
    sizes = [len(b.encode()) for b in log]
    sound = (path / f"{0:020d}.log").read_bytes()
    at = sum(sizes[:3])
    for byte, check in ((20, "crc"), (40, "crc"), (8, "framing")):
        changed = bytearray(sound)
        changed[at + byte] ^= 0x40
        (path / f"{0:020d}.log").write_bytes(changed)
        replica = of_partition_directory(str(path), 1, "delete")
        work = [SegmentAudit(s, True, (), False, -1) for s in replica.segments]
        found = judge_rows([replica], [rows for _, rows in audit_bin(work)]).findings
        assert [(f.check, f.position, f.offset) for f in found] == [(check, at, 7)]


def test_a_sealed_batch_whose_records_are_wrong_is_the_logs_fault(place: Place) -> None:
    at = place.at(0, 3)
    raw = bytearray(place.file(0).read_bytes()[at : place.at(0, 4)])
    raw[61] = 0xFF
    raw[17:21] = struct.pack(">I", crc32c(bytes(raw[21:])))
    place.patch(0, 3, 0, bytes(raw))
    assert accused(audit(place)) == [(BAD, "records", ".log")]


def two(tmp_path: Path, *, cleaned: int) -> tuple[Place, Place, list[Replica]]:
    one, other = Place(tmp_path / "1"), Place(tmp_path / "2")
    with other.file(0).open("r+b") as file:  # a batch that only one of them has as it was, below the clean offset
        file.write(replace(data(0), epoch=1).encode())
    replicas = [
        replace(of_partition_directory(str(p.path), n, "compact"), broker_id=n, leader_epochs=(), clean_offset=cleaned)
        for n, p in ((1, one), (2, other))
    ]
    return one, other, replicas


def test_records_that_do_not_parse_do_not_end_a_comparison_by_record(tmp_path: Path) -> None:
    one, _, replicas = two(tmp_path, cleaned=14)
    at = one.at(14, 5)
    raw = bytearray(one.file(14).read_bytes()[at : one.at(14, 6)])
    raw[61] = 0xFF
    raw[17:21] = struct.pack(">I", crc32c(bytes(raw[21:])))
    one.patch(14, 5, 0, bytes(raw))
    work = [SegmentAudit(s, True, (), True, -1) for r in replicas for s in r.segments]
    found = judge_rows(replicas, [rows for _, rows in audit_bin(work)]).findings
    assert (BAD, "records", 1) in {(f.level, f.check, f.replica) for f in found}
    assert (BAD, "replicas", 22) in {(f.level, f.check, f.offset) for f in found}


def test_a_replica_that_goes_while_it_is_compared_is_a_warning(tmp_path: Path) -> None:
    one, _, replicas = two(tmp_path, cleaned=14)
    work = [SegmentAudit(s, True, (), True, -1) for r in replicas for s in r.segments]
    rows = [rows for _, rows in audit_bin(work)]
    one.file(14).unlink()
    (found,) = [f for f in judge_rows(replicas, rows).findings if f.check == "replicas"]
    assert (found.level, found.topic, found.partition) == (WARN, "t", 0)
    assert "were not compared" in found.message


@pytest.mark.parametrize(
    "name", ["replication-offset-checkpoint", "cleaner-offset-checkpoint", "log-start-offset-checkpoint"]
)
def test_a_damaged_checkpoint_is_a_finding(name: str, place: Place) -> None:
    (place.path.parent / name).write_bytes(b"0\nmany\n")
    assert accused(audit(place)) == [(BAD, "file", name)]
