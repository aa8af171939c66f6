"""Message formats v0 and v1 in the jobs' decoder, audit, export and comparison of replicas."""

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logyard.broker.compiled import chunks, old_messages
from logyard.broker.records import message_set
from logyard.broker.records.decode import Record
from logyard.spark_jobs.audit.divergence import records_of
from logyard.spark_jobs.audit.partition import judge_partition
from logyard.spark_jobs.audit.segment import SegmentAudit, SegmentAuditor
from logyard.spark_jobs.segments import arrow
from logyard.spark_jobs.segments.indexes import offset_of_time
from logyard.spark_jobs.segments.replicas import Replica, of_partition_directory
from logyard.spark_jobs.segments.splits import COLUMNS as EXPORTED
from logyard.spark_jobs.segments.splits import Range, plan_splits, split_rows
from tests.support.batches import Rec, batch
from tests.support.old_logs import AnyBatch, old, random_old_log, seen
from tests.support.opened import open_trusted
from tests.support.segment_files import write_partition
from tests.unit.spark_jobs.segments.test_chunks import Bytes

COLUMNS = ("offset", "timestamp", "key", "value", "timestampType", "producerId", "sequence", "isTransactional")


def rows(replica: Replica, start: int, end: int, split_bytes: int = 1, columns: Any = COLUMNS) -> list[dict[str, Any]]:
    splits = plan_splits(Range(replica, start, end), committed_only=True, columns=columns, split_bytes=split_bytes)
    return [row for split in splits for part, _ in split_rows(split) for row in plain(part)]


def plain(part: pa.RecordBatch) -> list[dict[str, Any]]:
    at = part.schema.names.index("timestamp")
    rows: list[dict[str, Any]] = part.set_column(at, "timestamp", part.column("timestamp").cast("int64")).to_pylist()
    return rows


def replica_of(tmp_path: Path, log: list[AnyBatch], cuts: int = 3, name: str = "log") -> Replica:
    step = max(len(log) // cuts, 1)
    directory = write_partition(tmp_path / name, "t-0", [log[i : i + step] for i in range(0, len(log), step)])
    return of_partition_directory(str(directory), policy="compact")


def audited(*replicas: Replica) -> list[Any]:
    findings, tables = [], {}
    for replica in replicas:
        auditors = [SegmentAuditor(SegmentAudit(s, True, replica.leader_epochs, True, -1)) for s in replica.segments]
        tables[replica.broker_id] = [auditor.run() for auditor in auditors]
        findings += [f for auditor in auditors for f in auditor.findings]
    return findings + judge_partition(replicas, tables).findings


def test_messages_that_unpack_to_too_much_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = random_old_log(random.Random(1), 60)
    replica = replica_of(tmp_path, log, 1)
    (whole,) = chunks.read_chunks(replica.segments[0].open())
    monkeypatch.setattr(old_messages, "UNPACKED_BYTES", 100)
    cut = list(chunks.read_chunks(replica.segments[0].open()))
    assert len(cut) > 3
    assert isinstance(whole, chunks.Chunk)
    assert sum(len(one.headers) for one in cut if isinstance(one, chunks.Chunk)) == len(whole.headers)
    found = rows(replica, 0, 2**62)
    monkeypatch.undo()
    assert found == rows(replica, 0, 2**62)


@pytest.mark.parametrize("seed", range(10))
def test_every_record_is_exported_once(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    log = random_old_log(rng, 60)
    replica = replica_of(tmp_path, log, rng.choice([1, 3]))
    end = log[-1].last + 1
    start, stop = sorted(rng.randrange(end + 1) for _ in range(2))
    found = rows(replica, start, stop, rng.choice([1, 300, 10**6]))
    wanted = [r for r in seen(log) if start <= r.offset < stop]
    assert [(r["offset"], r["timestamp"], r["key"], r["value"]) for r in found] == [
        (r.offset, r.timestamp, r.key, r.value) for r in wanted
    ]
    magic = {r.offset: getattr(b, "magic", 2) for b in log for r in b.records}
    assert all((r["timestampType"] == -1) == (magic[r["offset"]] == 0) for r in found)
    assert {(r["producerId"], r["sequence"], r["isTransactional"]) for r in found} <= {(-1, -1, False)}


@pytest.mark.parametrize("seed", range(10))
def test_a_sound_log_of_all_formats_is_sound(seed: int, tmp_path: Path) -> None:
    log = random_old_log(random.Random(seed), 60)
    replica = replace(replica_of(tmp_path, log), clean_offset=log[-1].last + 1)
    assert [f for f in audited(replica) if f.check != "keys"] == []


def test_replicas_are_told_apart(tmp_path: Path) -> None:
    log: list[AnyBatch] = [old([Rec(n * 2, b"a", b"%d" % n), Rec(n * 2 + 1, b"b", b"v")], n % 2, 2) for n in range(9)]
    changed = [*log[:4], old([Rec(8, b"a", b"other"), Rec(9, b"b", b"v")], 0, 2), *log[5:]]
    one, other = replica_of(tmp_path, log, name="1"), replica_of(tmp_path, changed, name="2")
    one, other = replace(one, broker_id=1), replace(other, broker_id=2)
    assert [(f.check, f.offset) for f in audited(one, other)] == [("replicas", 8)]
    compacted = [offset for s in one.segments for part in records_of(s) for offset in part.offset.tolist()]
    assert compacted == list(range(18))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_all_codecs(magic: int, codec: int) -> None:
    records = [Record(40 + 2 * n, 1_500_000_000_000 + n, b"k%d" % n, None if n == 2 else b"v" * n) for n in range(5)]
    if codec:
        data = message_set.wrapper(records, codec, magic, 0)
    else:
        data = b"".join(message_set.message(r, r.offset, magic, 0) for r in records)
    (chunk,) = chunks.read_chunks(Bytes(data))
    assert isinstance(chunk, chunks.Chunk)
    opened = open_trusted(chunk, "memory")
    found = plain(arrow.record_batch(opened, chunks.walk(opened)))
    expected = [(r.offset, r.timestamp if magic else -1, r.key, r.value) for r in records]
    assert [(f["offset"], f["timestamp"], f["key"], f["value"]) for f in found] == expected


def test_any_flipped_byte_is_found_and_hides_nothing_else(tmp_path: Path) -> None:
    log: list[AnyBatch] = [
        old([Rec(0, b"a", b"1")], 0, 0),
        old([Rec(1, b"b", b"1"), Rec(2, b"c", b"2")]),
        batch([Rec(3, b"d", b"")]),
    ]
    replica = replica_of(tmp_path, log, cuts=1)
    path = Path(replica.segments[0].name)
    good = path.read_bytes()
    first, second = len(log[0].encode()), len(log[1].encode())
    for at in [*range(12, first), *range(first + 12, first + second)]:
        path.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
        auditor = SegmentAuditor(SegmentAudit(replica.segments[0], True, (), False, -1))
        table = auditor.run()
        damaged = 0 if at < first else first
        assert {f.position for f in auditor.findings if f.level == "bad"} == {damaged}, f"byte {at}"
        framed = at != damaged + 16  # another magic may need another length
        assert table.column("position").to_pylist() == [0, first, first + second] or not framed
        with pytest.raises(chunks.CorruptBatch, match=rf"{path.name}.*position {damaged} "):
            rows(replica, 0, 4)
    path.write_bytes(good)
    shutil.copytree(path.parent, tmp_path / "sound")
    assert len(rows(replica, 0, 4)) == 4


def test_times_inside_wrappers_are_found(tmp_path: Path) -> None:
    log: list[AnyBatch] = [old([Rec(3 * n + i, b"k", b"v", 1000 + 10 * n + i) for i in range(3)]) for n in range(40)]
    replica = replica_of(tmp_path, log)
    for offset in (0, 1, 50, 51, 52, 119):
        n, i = divmod(offset, 3)
        assert offset_of_time(replica, 1000 + 10 * n + i) == offset
    assert offset_of_time(replica, 5000) is None


def test_a_large_segment_is_cut_at_messages_and_nothing_falls_between(tmp_path: Path) -> None:
    log: list[AnyBatch] = [old([Rec(9 * n + i, b"k", b"v" * 9) for i in range(9)], n % 2, 2) for n in range(60)]
    replica = replica_of(tmp_path, log, cuts=2)
    splits = list(plan_splits(Range(replica, 4, 500), committed_only=True, columns=EXPORTED, split_bytes=300))
    assert len(splits) > 8
    assert [r["offset"] for r in rows(replica, 4, 500, 300)] == list(range(4, 500))
