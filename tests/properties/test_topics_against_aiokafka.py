"""Generated topics of every kind, read by the jobs' compiled code and by aiokafka's pure-Python reader.

Both see the same records, the same damaged batches, the same last record of each key.
"""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.legacy_records import _LegacyRecordBatchBuilderPy, _LegacyRecordBatchPy

from logyard.broker.compaction.decision import Survey
from logyard.broker.compaction.transactions import AbortedTransaction
from logyard.broker.compiled import chunks, kernels
from logyard.broker.compiled.key_table import KeyTable
from logyard.broker.errors import CorruptData
from logyard.spark_jobs.audit.findings import BAD
from logyard.spark_jobs.audit.segment import SegmentAudit, SegmentAuditor
from logyard.spark_jobs.compact import rewrite
from logyard.spark_jobs.compact import survey as spark_survey
from logyard.spark_jobs.segments import arrow
from logyard.spark_jobs.segments.files import SegmentFile, of_directory
from tests.support import compaction_model as model
from tests.support.batches import CONTROL, Batch, Rec, batch, read_back

NOW_MS = model.START_MS + 10**8
Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def random_topic(rng: random.Random) -> tuple[model.Log, list[bytes]]:
    """A history with gaps, empty keys and a huge record, and its batches as bytes."""
    log = model.random_log(rng, rng.randrange(5, 40))
    if rng.random() < 0.5:
        at = log.end
        huge = rng.randbytes(rng.choice([70_000, 300_000]))
        records = [Rec(at, b"", huge, model.START_MS), Rec(at + 1, b"k1", huge[:10] * 20_000, model.START_MS + 1)]
        log.batches.append(batch(records, codec=rng.randrange(5)))
    gone = {b.base for b in log.batches if not b.flags and rng.random() < 0.1}
    kept = [b for b in log.batches if b.base not in gone]
    log = replace(log, batches=kept or log.batches)
    return log, [b.encode() for b in log.batches]


def old_format(rng: random.Random, offset: int) -> bytes:
    """A message of format v0 or v1, or a compressed set of them, as brokers before 0.11 wrote it."""
    codec = rng.choice([0, 1])
    magic, count = rng.randrange(2), 3 if codec else 1
    builder = _LegacyRecordBatchBuilderPy(magic, codec, 1 << 20)
    for n in range(count):
        builder.append(n if magic else offset + n, timestamp=model.START_MS, key=b"k", value=b"old")
    made = bytearray(builder.build())
    made[:8] = (offset + count - 1).to_bytes(8, "big")
    return bytes(made)


def damage(rng: random.Random, data: bytes) -> bytes:
    """Flip a byte after the length: either a checksum covers it, or it is the magic."""
    at = rng.choice([16, *rng.choices(range(21, len(data)), k=4)])
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def write(rng: random.Random, directory: Path, batches: list[bytes]) -> list[SegmentFile]:
    """Cut batches into segments."""
    directory.mkdir(parents=True)
    segments: list[list[bytes]] = []
    for data in batches:
        if not segments or rng.random() < 0.15:
            segments.append([])
        segments[-1].append(data)
    for segment in segments:
        old = slowly(segment[0]) if segment[0][16] < 2 else None
        base = old[0][0] if old else int.from_bytes(segment[0][:8], "big")
        (directory / f"{base:020d}.log").write_bytes(b"".join(segment))
    return [replace(file, active=True) for file in of_directory(str(directory))]


def slowly(data: bytes) -> list[Row] | None:
    """One batch as aiokafka reads it without its C code; None if it does not."""
    try:
        if data[16] < 2:
            old = _LegacyRecordBatchPy(memoryview(data), data[16])
            if not old.validate_crc():
                return None
            return [(r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value, ()) for r in old]
        if data[16] > 2:
            return None
        reader = _DefaultRecordBatchPy(bytearray(data))
        if not reader.validate_crc():
            return None
        return [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in reader]
    except Exception:
        return None


def quickly(files: list[SegmentFile]) -> list[Row]:
    """All records of sound batches as the jobs read them."""
    rows: list[Row] = []
    for file in files:
        for chunk in chunks.read_chunks(file.open(), chunk_bytes=1 << 16):
            assert isinstance(chunk, chunks.Chunk)
            bad = {d.position - chunk.file_position for d in chunks.check_crcs(chunk)}
            sound = chunk.select(~np.isin(chunk.headers[:, kernels.POSITION], list(bad)))
            for part in chunks.checked_parts(sound, file.name):
                table = arrow.record_batch(part, chunks.walk(part))
                plain = table.set_column(1, "timestamp", table.column("timestamp").cast("int64")).to_pylist()
                for r in plain:
                    headers = tuple((h["key"], h["value"]) for h in r["headers"])
                    rows.append((r["offset"], r["timestamp"], r["key"], r["value"], headers))
    return rows


@pytest.mark.parametrize("block", range(3))
def test_the_same_records_and_the_same_damage(block: int, tmp_path: Path) -> None:
    damaged_batches = 0
    for seed in range(block * 25, block * 25 + 25):
        rng = random.Random(seed)
        log, batches = random_topic(rng)
        if seed % 3 == 0:
            batches = [damage(rng, b) if rng.random() < 0.15 else b for b in batches]
        if seed % 5 == 0:
            batches.append(old_format(rng, log.end))
        files = write(rng, tmp_path / str(seed) / "t-0", batches)
        slow = [slowly(b) for b in batches]
        assert quickly(files) == [row for rows in slow if rows is not None for row in rows], f"seed {seed}"
        expected = {int.from_bytes(b[:8], "big") for b, rows in zip(batches, slow, strict=True) if rows is None}
        found: set[int] = set()
        for file in files:
            auditor = SegmentAuditor(SegmentAudit(file, True, (), True, NOW_MS))
            auditor.run()
            found |= {f.offset for f in auditor.findings if f.level == BAD}
        assert found == expected, f"seed {seed}"
        damaged_batches += len(expected)
        if expected:
            with pytest.raises(CorruptData, match=f"offset {min(expected)}\\)"):
                spark_survey.survey_segments(files, survey_of(log), KeyTable())
    assert damaged_batches > 10


def survey_of(log: model.Log) -> Survey:
    aborted = [AbortedTransaction(*row) for row in log.aborted_index()]
    end = log.end + 100 if log.open_from is None else log.open_from
    return Survey("t", 0, 0, log.batches[0].base, end, NOW_MS, 1000, 0, aborted)


def last_of_keys(log: model.Log, end: int) -> dict[bytes, int]:
    """The plain reference: each key's last offset, from the records that aiokafka reads."""
    last: dict[bytes, int] = {}
    for made in log.batches:
        skipped = made.flags & CONTROL or log.transactions.get(made.base) in log.aborted or made.base >= end
        rows = [] if skipped else slowly(made.encode()) or []
        last |= {row[2]: row[0] for row in rows if row[2] is not None}
    return last


@pytest.mark.parametrize("block", range(2))
def test_the_last_record_of_each_key_stays(block: int, tmp_path: Path) -> None:
    for seed in range(500 + block * 25, 525 + block * 25):
        rng = random.Random(seed)
        log, batches = random_topic(rng)
        files = [
            replace(f, active=False, last_offset=read_back(Path(f.name).read_bytes())[-1].last)
            for f in write(rng, tmp_path / str(seed) / "t-0", batches)
        ]
        survey = survey_of(log)
        decision = spark_survey.survey_segments(files, survey, KeyTable())
        rewriter = rewrite.Rewriter(decision, str(tmp_path))
        out = b""
        for group in rewrite.plan_groups(files, decision, {"segment.bytes": 10**6}):
            part = rewriter.rewrite(group)
            paths = [part.path] if part else [file.name for file in group]
            out += b"".join(Path(path).read_bytes() for path in paths)
        last = last_of_keys(log, survey.range_end)
        below = [row for row in rows_of(out) if row[0] < survey.range_end]
        assert [row[0] for row in below] == sorted(last.values()), f"seed {seed}"
        before = {row[0]: row for b in batches for row in slowly(b) or []}
        assert all(before[row[0]] == row for row in below), "and every one as it was"


def rows_of(data: bytes) -> list[Any]:
    """The data records of a log, by the slow reader."""
    rows: list[Any] = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
        if not int.from_bytes(data[at + 21 : at + 23], "big") & CONTROL:
            read = slowly(data[at : at + size])
            assert read is not None
            rows += read
        at += size
    return rows


def test_the_generator_makes_every_kind() -> None:
    made: list[Batch] = []
    for seed in range(60):
        log, _ = random_topic(random.Random(seed))
        made += log.batches
        made += [b for b in log.batches if log.transactions.get(b.base) in log.aborted]
    records = [r for b in made for r in b.records if not b.flags & CONTROL]
    assert {b.codec for b in made} == {0, 1, 2, 3, 4}
    assert any(b.flags & CONTROL for b in made)
    assert any(r.key is None for r in records)
    assert any(r.key == b"" for r in records)
    assert any(r.value is None for r in records)
    assert any(r.headers for r in records)
    assert any(len(r.value or b"") > 1 << 16 for r in records)
