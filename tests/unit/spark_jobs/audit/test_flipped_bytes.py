"""One byte flipped anywhere in a replica's files, and the audit finds it, or every search still ends where it did."""

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from logyard.broker.log.producers import ProducerEntry, SeenBatch, encode_snapshot
from logyard.spark_jobs.audit.findings import Finding
from logyard.spark_jobs.audit.partition import audit_bin, judge_rows
from logyard.spark_jobs.audit.replica_state import damaged_files
from logyard.spark_jobs.audit.segment import SegmentAudit
from logyard.spark_jobs.segments.replicas import of_partition_directory
from tests.support.batches import TRANSACTIONAL, Batch, Rec, batch, marker
from tests.support.segment_files import write_partition

NOW_MS = 10_000


def data(at: int, producer: int, sequence: int, *, flags: int = TRANSACTIONAL, epoch: int = 0) -> Batch:
    records = [Rec(at + n, b"k%d" % n, b"v" * 9, 1000 + 10 * at + n) for n in range(2)]
    made = batch(records, flags=flags, producer_id=producer, producer_epoch=0, sequence=sequence, codec=at % 3)
    return replace(made, epoch=epoch)


def aborted(at: int, producer: int, epoch: int = 0) -> Batch:
    return replace(marker(at, producer, commit=False, timestamp=1000 + 10 * at), epoch=epoch)


# Producer 1's transaction begins in the first segment and is aborted in the second, while producer 2's goes on.
SEGMENTS = [
    [data(0, -1, -1, flags=0), data(2, 1, 0), data(4, 2, 0)],
    [data(6, 1, 2), aborted(8, 1), data(9, 2, 2, epoch=3), aborted(11, 2, epoch=3)],
    [data(12, -1, -1, flags=0, epoch=3)],
]
EPOCHS = [(0, 0), (3, 9)]
# version, producer, first offset, last offset, last stable offset
TXN_INDEX = [(0, 1, 2, 8, 4), (0, 2, 4, 11, 12)]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = write_partition(tmp_path, "t-0", SEGMENTS, epochs=EPOCHS)
    (made / f"{6:020d}.txnindex").write_bytes(b"".join(struct.pack(">hqqqq", *row) for row in TXN_INDEX))
    producer = ProducerEntry(1, 0, batches=(SeenBatch(3, 7, 1, 1071),))
    for at in (6, 14):
        (made / f"{at:020d}.snapshot").write_bytes(encode_snapshot([producer]))
    return made


def audit(directory: Path) -> list[Finding]:
    replica = of_partition_directory(str(directory), 1, "delete")
    found = list(damaged_files(replica))
    work = [SegmentAudit(s, True, replica.leader_epochs, False, NOW_MS) for s in replica.segments]
    return found + judge_rows([replica], [rows for _, rows in audit_bin(work)]).findings


def flips(path: Path) -> Iterator[tuple[int, int]]:
    """Flip each byte of a file in turn, each time another bit; yields position and mask. The file is mended after."""
    good = path.read_bytes()
    for at in range(len(good)):
        mask = 1 << at % 8
        path.write_bytes(good[:at] + bytes([good[at] ^ mask]) + good[at + 1 :])
        yield at, mask
    path.write_bytes(good)


def test_a_sound_replica_has_no_finding(directory: Path) -> None:
    assert audit(directory) == []


@pytest.mark.parametrize(
    "name",
    [
        f"{0:020d}.log",
        f"{6:020d}.log",
        f"{12:020d}.log",
        f"{0:020d}.index",
        f"{6:020d}.index",
        f"{0:020d}.timeindex",
        f"{6:020d}.timeindex",
        f"{6:020d}.txnindex",
        f"{6:020d}.snapshot",
        f"{14:020d}.snapshot",
        "leader-epoch-checkpoint",
    ],
)
def test_every_flipped_byte_is_found(directory: Path, name: str) -> None:
    path = directory / name
    assert path.stat().st_size > 0
    missed = [(at, mask) for at, mask in flips(path) if not audit(directory)]
    assert missed == []
    assert audit(directory) == []


def test_a_transaction_index_that_is_gone_is_found(directory: Path) -> None:
    (directory / f"{6:020d}.txnindex").unlink()
    assert [(f.check, f.offset) for f in audit(directory)] == [("txnindex", 8), ("txnindex", 11)]


def test_metadata_that_cannot_be_read_is_a_finding(directory: Path) -> None:
    (directory / "partition.metadata").write_text("version: 7\n")
    (found,) = audit(directory)
    assert (found.check, found.file) == ("file", str(directory / "partition.metadata"))
