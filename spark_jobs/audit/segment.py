"""Checks of one segment, in one task: returns its batches as rows, and what is wrong with them as findings.

Checked here: framing, checksums, records (deep), order inside the file, leader epochs, timestamps; the indexes with
indexes.py. What needs neighbours or other replicas is partition.py's.
"""

import os
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from logyard.broker.compaction.batch_facts import marker_type
from logyard.broker.compaction.decision import CONTROL
from logyard.broker.compaction.transactions import ABORT_MARKER, COMMIT_MARKER
from logyard.broker.compiled import kernels as k
from logyard.broker.compiled.chunks import (
    Chunk,
    CorruptBatch,
    Damage,
    check_crcs,
    opened_parts,
    read_chunks,
    walk,
)
from logyard.broker.compiled.kernels import Array
from logyard.broker.errors import CorruptData, LogyardError
from logyard.broker.log.checkpoints import decode_epochs
from logyard.broker.log.layout import LEADER_EPOCHS
from logyard.broker.log.producers import decode_snapshot
from logyard.broker.log.segment.index import AbortedTxn, decode_aborted
from logyard.broker.records.header import parse_header
from logyard.spark_jobs.audit.findings import BAD, WARN, Finding
from logyard.spark_jobs.audit.framing import OPEN_END, Blind, Framed, believed_last, framed
from logyard.spark_jobs.audit.indexes import TAIL, index_faults
from logyard.spark_jobs.segments.digests import batch_hashes
from logyard.spark_jobs.segments.files import SegmentFile

FUTURE_MS = 3_600_000
NO_MARKER = -1


BATCH_SCHEMA = pa.schema(
    [
        ("segment", pa.int64()),
        ("position", pa.int64()),
        ("base", pa.int64()),
        ("last", pa.int64()),
        ("length", pa.int64()),
        ("crc", pa.int64()),
        ("epoch", pa.int32()),
        ("attributes", pa.int32()),
        ("max_timestamp", pa.int64()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int32()),
        ("sequence", pa.int32()),
        ("records", pa.int32()),
        ("content", pa.int64()),
        ("marker", pa.int8()),
    ]
)


@dataclass(frozen=True, slots=True)
class SegmentAudit:
    """What a task needs to check a segment: its files, and what its replica reports."""

    segment: SegmentFile
    deep: bool
    leader_epochs: tuple[tuple[int, int], ...]
    compacted: bool
    now_ms: int
    log_start_offset: int = 0


class SegmentAuditor:
    """Reads one segment once, in `run`; `findings`, `aborted` and `blind` are complete when it returns."""

    def __init__(self, work: SegmentAudit) -> None:
        self._work = work
        self._segment = work.segment
        self.findings: list[Finding] = []
        self.aborted: tuple[AbortedTxn, ...] | None = None  # the transaction index; None if it cannot be read
        self.blind: tuple[Blind, ...] = ()  # offsets that only damaged bytes tell
        self._headers: list[Array] = []
        self._sound: list[Array] = []
        self._end = 0
        self._is_whole = True

    def run(self) -> pa.Table:
        """Return one row per batch (BATCH_SCHEMA)."""
        rows: list[pa.RecordBatch] = []
        try:
            for chunk in read_chunks(self._segment.open()):
                if isinstance(chunk, Damage):
                    self._add(BAD, "framing", chunk)
                    self._is_whole = False
                else:
                    rows.append(self._batch_rows(chunk))
                    self._end = chunk.file_position + len(chunk.data)
            self._check_files()
        except (OSError, LogyardError) as error:
            self._note(BAD, "readable", -1, -1, f"{error}")
            is_short = isinstance(error, CorruptData) and not isinstance(error, CorruptBatch)
            if self._is_whole and self._end < self._segment.size and not is_short:
                # What was not read may be sound.
                self._is_whole = False
                self.blind = tuple(self._framed().blind())
        return pa.Table.from_batches(rows, BATCH_SCHEMA)

    def _batch_rows(self, chunk: Chunk) -> pa.RecordBatch:
        headers = chunk.headers.copy()
        headers[:, k.POSITION] += chunk.file_position
        self._headers.append(headers)
        broken = check_crcs(chunk)
        damaged = {d.position for d in broken}
        for damage in broken:
            self._add(BAD, "crc" if "checksum" in damage.reason else "format", damage)
        sound = ~np.isin(headers[:, k.POSITION], list(damaged))
        self._sound.append(sound)
        content = np.zeros(len(headers), np.int64)
        if self._work.deep and sound.any():
            content[sound] = self._open(chunk.select(sound))
        self._check_headers(chunk, headers, sound)
        return self._rows(_believed(headers, sound), content, self._markers(chunk, headers, sound))

    def _markers(self, chunk: Chunk, headers: Array, sound: Array) -> Array:
        """Return the type of marker that each batch is, NO_MARKER for data."""
        out = np.full(len(headers), NO_MARKER, np.int8)
        for index in np.flatnonzero(sound & (headers[:, k.ATTRIBUTES] & CONTROL != 0)).tolist():
            batch = chunk.batch(index)
            try:
                kind = marker_type(parse_header(batch), batch)
            except CorruptData as error:
                self._add(BAD, "records", chunk.damage(index, str(error)))
                continue
            if kind in (ABORT_MARKER, COMMIT_MARKER):
                out[index] = kind
        return out

    def _open(self, chunk: Chunk) -> Array:
        """Decompress every batch and parse its records; returns a hash of each batch's records (0 for a damaged
        batch)."""
        return np.concatenate([self._opened(part, damages) for part, damages in opened_parts(chunk)])

    def _opened(self, chunk: Chunk, damages: list[Damage]) -> Array:
        for damage in damages:
            self._add(BAD, "records", damage)
        bad = {d.position - chunk.file_position for d in damages}
        out = np.zeros(len(chunk.headers), np.int64)
        sound = ~np.isin(chunk.headers[:, k.POSITION], list(bad))
        # One damaged batch must not hide those after it: parse all at once, and one by one only if that fails.
        try:
            out[sound] = self._walk(chunk.select(sound))
        except CorruptBatch:
            for index in np.flatnonzero(sound).tolist():
                try:
                    out[index] = self._walk(chunk.select(slice(index, index + 1)))[0]
                except CorruptBatch as error:
                    self._add(BAD, "records", error.damage)
        return out

    def _walk(self, chunk: Chunk) -> Array:
        records = walk(chunk)
        headers = chunk.headers
        if len(records):
            self._check_records(chunk, records, headers)
        hashes: Array = batch_hashes(chunk.raw, records, len(headers))
        return hashes

    def _check_records(self, chunk: Chunk, records: Array, headers: Array) -> None:
        batch = records[:, k.BATCH]
        base = headers[:, k.BASE_OFFSET]
        last = base + headers[:, k.LAST_DELTA]
        offsets = records[:, k.OFFSET]
        same = np.concatenate([[False], batch[1:] == batch[:-1]])
        wrong = (offsets < base[batch]) | (offsets > last[batch])
        wrong |= same & (offsets <= np.concatenate([[-1], offsets[:-1]]))
        for row in np.flatnonzero(wrong)[:1].tolist():
            damage = chunk.damage(
                int(batch[row]), f"record offset {int(offsets[row])} is out of order or out of its batch"
            )
            self._add(BAD, "records", damage)
        latest = np.full(len(headers), -(2**62), np.int64)
        np.maximum.at(latest, batch, records[:, k.TIMESTAMP])
        filled = headers[:, k.COUNT] > 0
        for row in np.flatnonzero(filled & (latest != headers[:, k.MAX_TIMESTAMP])).tolist():
            text = f"its largest timestamp is {int(latest[row])}, its header says {int(headers[row, k.MAX_TIMESTAMP])}"
            self._add(WARN, "timestamps", chunk.damage(row, text))
        if self._work.compacted:
            control = headers[:, k.ATTRIBUTES] & 0x20 != 0
            for row in np.flatnonzero((records[:, k.KEY_SIZE] < 0) & ~control[batch])[:1].tolist():
                text = f"record {int(offsets[row])} has no key, in a compacted topic"
                self._add(WARN, "keys", chunk.damage(int(batch[row]), text))

    def _check_headers(self, chunk: Chunk, headers: Array, sound: Array) -> None:
        base = headers[:, k.BASE_OFFSET]
        checks = [
            (base < self._segment.base_offset, BAD, "offsets", "its offset lies below its segment's base"),
            (headers[:, k.LAST_DELTA] < 0, BAD, "offsets", "its last offset lies below its first"),
            (headers[:, k.COUNT] > headers[:, k.LAST_DELTA] + 1, BAD, "offsets", "it has more records than offsets"),
        ]
        if self._work.now_ms > 0:
            future = headers[:, k.MAX_TIMESTAMP] > self._work.now_ms + FUTURE_MS
            checks.append((future, WARN, "timestamps", "its timestamp is more than an hour in the future"))
        for mask, level, check, text in checks:
            for row in np.flatnonzero(mask & sound).tolist()[:10]:
                self._add(level, check, chunk.damage(row, text))
        self._check_epochs(chunk, headers, sound)

    def _check_epochs(self, chunk: Chunk, headers: Array, sound: Array) -> None:
        if not self._work.leader_epochs:
            return
        epochs, starts = (np.array(c, np.int64) for c in zip(*self._work.leader_epochs, strict=True))
        at = np.searchsorted(starts, headers[:, k.BASE_OFFSET], side="right") - 1
        expected = np.where(at >= 0, epochs[np.maximum(at, 0)], -1)
        # Messages before v2 carry no epoch, and the epoch file does not cover records before them. Batches below the
        # log's start are not part of the log.
        is_told = (headers[:, k.MAGIC] == 2) & (headers[:, k.BASE_OFFSET] >= self._work.log_start_offset)
        is_told &= (at >= 0) | (headers[:, k.LEADER_EPOCH] >= epochs[0])
        differs = expected != headers[:, k.LEADER_EPOCH]
        for row in np.flatnonzero(differs & is_told & sound).tolist()[:10]:
            text = f"its leader epoch is {int(headers[row, k.LEADER_EPOCH])}, the epoch file says {int(expected[row])}"
            self._add(BAD, "epochs", chunk.damage(row, text))

    # --- indexes -----------------------------------------------------------------------------------------------------

    def _framed(self) -> Framed:
        return framed(self._headers, self._sound, self._segment.base_offset, self._end, is_whole=self._is_whole)

    def _check_files(self) -> None:
        batches = self._framed()
        self.blind = tuple(batches.blind())
        said, last = self._segment.last_offset, batches.last_offset
        if last >= 0 and said >= 0 and last != said and self._is_whole and batches.sound[-1]:
            self._note(BAD, "offsets", -1, last, f"the segment ends at {last}, the broker says {said}")
        self._check_besides()
        if self._segment.active:
            return
        for fault in index_faults(self._segment, batches, compacted=self._work.compacted):
            self._note(fault.level, fault.check, fault.position, fault.offset, fault.text, fault.suffix)
            if fault.check == TAIL:
                self.blind += (Blind(fault.offset, OPEN_END),)
        try:
            self.aborted = tuple(decode_aborted(self._segment.read_all("txnindex")))
        except CorruptData as error:
            self._note(BAD, "txnindex", -1, -1, str(error), ".txnindex")

    def _check_besides(self) -> None:
        """Check the producer snapshot at the segment's base, and the leader epochs on a live broker's disk."""
        try:
            if snapshot := self._segment.read_all("snapshot"):
                decode_snapshot(snapshot)
        except CorruptData as error:
            self._note(BAD, "snapshot", -1, -1, str(error), ".snapshot")
        try:
            entries = decode_epochs(self._segment.read_all("epochs") or b"0\n0\n")
        except CorruptData as error:
            self._note_epochs(-1, str(error))
            return
        for epoch, start in entries:
            # An epoch that begins after the leased offsets was added after the lease was taken.
            if (epoch, start) not in self._work.leader_epochs and start <= self._segment.last_offset:
                self._note_epochs(start, f"it says that epoch {epoch} begins at {start}, the broker does not")

    def _note_epochs(self, offset: int, text: str) -> None:
        s = self._segment
        file = f"{os.path.dirname(s.name)}/{LEADER_EPOCHS}"
        self.findings.append(Finding(BAD, "epochs", s.topic, s.partition, s.replica, file, -1, offset, text))

    # --- rows --------------------------------------------------------------------------------------------------------

    def _add(self, level: str, check: str, damage: Damage) -> None:
        text = f"batch at position {damage.position} (offset {damage.base_offset}): {damage.reason}"
        self._note(level, check, damage.position, damage.base_offset, text)

    def _note(self, level: str, check: str, position: int, offset: int, message: str, suffix: str = ".log") -> None:
        s = self._segment
        file = s.name[: -len(".log")] + suffix
        self.findings.append(Finding(level, check, s.topic, s.partition, s.replica, file, position, offset, message))

    def _rows(self, headers: Array, content: Array, markers: Array) -> pa.RecordBatch:
        count = len(headers)
        columns = {
            "segment": np.full(count, self._segment.base_offset, np.int64),
            "position": headers[:, k.POSITION],
            "base": headers[:, k.BASE_OFFSET],
            "last": headers[:, k.BASE_OFFSET] + headers[:, k.LAST_DELTA],
            "length": headers[:, k.LENGTH],
            "crc": headers[:, k.CRC],
            "epoch": headers[:, k.LEADER_EPOCH].astype(np.int32),
            "attributes": headers[:, k.ATTRIBUTES].astype(np.int32),
            "max_timestamp": headers[:, k.MAX_TIMESTAMP],
            "producer_id": headers[:, k.PRODUCER_ID],
            "producer_epoch": headers[:, k.PRODUCER_EPOCH].astype(np.int32),
            "sequence": headers[:, k.BASE_SEQUENCE].astype(np.int32),
            "records": headers[:, k.COUNT].astype(np.int32),
            "content": content,
            "marker": markers,
        }
        # By their buffers: `pa.array` asks pandas whether it is one of its own, and imports it, which takes longer than
        # the segment.
        arrays = [
            pa.Array.from_buffers(field.type, count, [None, pa.py_buffer(np.ascontiguousarray(columns[field.name]))])
            for field in BATCH_SCHEMA
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=BATCH_SCHEMA)


def _believed(headers: Array, sound: Array) -> Array:
    """Return the fields of headers that other checks may trust: of a batch with a wrong checksum its position and
    offsets, one record, and nothing else."""
    if sound.all():
        return headers
    out = headers.copy()
    bad = ~sound
    out[:, k.LAST_DELTA] = believed_last(headers, sound) - headers[:, k.BASE_OFFSET]
    for column, value in ((k.ATTRIBUTES, 0), (k.MAX_TIMESTAMP, -1), (k.PRODUCER_ID, -1), (k.BASE_SEQUENCE, -1)):
        out[bad, column] = value
    out[bad, k.COUNT] = 1
    return out
