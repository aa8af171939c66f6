"""Auditing one segment inside one task: its batches as rows, and what is wrong with them as findings.

Checked here: framing, checksums, format, records (deep), order inside the file, offset index, time index, transaction
index, leader epochs, timestamps. What needs neighbours or other replicas is audit_partition.py's.
"""

import bisect
import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from logyard.broker.compaction.facts import marker_type
from logyard.broker.compaction.survey import CONTROL
from logyard.broker.compaction.transactions import ABORT_MARKER, COMMIT_MARKER
from logyard.broker.errors import CorruptData, LogyardError
from logyard.broker.log.checkpoints import decode_epochs
from logyard.broker.log.index import AbortedTxn, decode_aborted
from logyard.broker.log.layout import LEADER_EPOCHS
from logyard.broker.log.producers import decode_snapshot
from logyard.broker.records.header import parse_header
from logyard.spark_jobs import kernels as k
from logyard.spark_jobs.decode import Chunk, CorruptBatch, Damage, check_crcs, open_payloads, read_chunks, walk
from logyard.spark_jobs.hashing import batch_hashes
from logyard.spark_jobs.kernels import Array
from logyard.spark_jobs.segments import SegmentFile

OK, WARN, BAD = "ok", "warn", "bad"
FUTURE_MS = 3_600_000
NO_MARKER = -1


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong (bad) or odd (warn): where exactly, and what."""

    level: str
    check: str
    topic: str
    partition: int
    replica: int
    file: str
    position: int
    offset: int
    message: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


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
    """What a task is told of the segment: its file, and what its replica says of it."""

    segment: SegmentFile
    deep: bool
    leader_epochs: tuple[tuple[int, int], ...]
    compacted: bool
    now_ms: int


class SegmentAuditor:
    """Goes through one segment once; `findings` fill as it goes."""

    def __init__(self, work: SegmentAudit) -> None:
        self._work = work
        self._segment = work.segment
        self.findings: list[Finding] = []
        self.aborted: tuple[AbortedTxn, ...] | None = None  # what the transaction index says, where it can be read
        self._headers: list[Array] = []

    def run(self) -> pa.Table:
        """Return one row per batch (BATCH_SCHEMA)."""
        rows: list[pa.RecordBatch] = []
        try:
            for chunk in read_chunks(self._segment.open()):
                if isinstance(chunk, Damage):
                    self._add(BAD, "framing", chunk)
                else:
                    rows.append(self._batch_rows(chunk))
            self._check_indexes()
        except (OSError, LogyardError) as error:
            self._note(BAD, "readable", -1, -1, f"{error}")
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
        content = np.zeros(len(headers), np.int64)
        if self._work.deep and sound.any():
            content[sound] = self._open(chunk.select(sound))
        self._check_headers(chunk, headers, sound)
        return self._rows(headers, content, self._markers(chunk, headers, sound))

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
        """Open every batch and walk its records; returns a hash of each batch's records (0 where damaged)."""
        damaged = open_payloads(chunk)
        for damage in damaged:
            self._add(BAD, "records", damage)
        bad = {d.position - chunk.file_position for d in damaged}
        out = np.zeros(len(chunk.headers), np.int64)
        sound = ~np.isin(chunk.headers[:, k.POSITION], list(bad))
        # One damaged batch must not hide those behind it: walk all, and on damage one by one.
        try:
            part = chunk.select(sound)
            out[sound] = self._walk(part)
        except CorruptBatch:
            for index in np.flatnonzero(sound).tolist():
                one = chunk.select(np.arange(len(chunk.headers)) == index)
                try:
                    out[index] = self._walk(one)[0]
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
        # Messages before v2 carry none.
        differs = (expected != headers[:, k.LEADER_EPOCH]) & (headers[:, k.MAGIC] == 2)
        for row in np.flatnonzero(differs & sound).tolist()[:10]:
            text = f"its leader epoch is {int(headers[row, k.LEADER_EPOCH])}, the epoch file says {int(expected[row])}"
            self._add(BAD, "epochs", chunk.damage(row, text))

    # --- indexes -----------------------------------------------------------------------------------------------------

    def _check_indexes(self) -> None:
        headers = np.concatenate(self._headers) if self._headers else np.empty((0, k.HEADER_COLUMNS), np.int64)
        last = headers[:, k.BASE_OFFSET] + headers[:, k.LAST_DELTA]
        said = self._segment.last_offset
        if len(headers) and said >= 0 and int(last[-1]) != said:
            self._note(
                BAD, "offsets", -1, int(last[-1]), f"the segment ends at {int(last[-1])}, the broker says {said}"
            )
        self._check_besides()
        if self._segment.active:
            return
        self._check_offset_index(headers, last)
        self._check_time_index(headers, last)
        try:
            self.aborted = tuple(decode_aborted(self._segment.read_all("txnindex")))
        except CorruptData as error:
            self._note(BAD, "txnindex", -1, -1, str(error), ".txnindex")

    def _check_besides(self) -> None:
        """The producer snapshot at the segment's base, and the leader epochs as they lie on a live broker's disk."""
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
            # One that begins behind what was leased is younger than the lease.
            if (epoch, start) not in self._work.leader_epochs and start <= self._segment.last_offset:
                self._note_epochs(start, f"it says that epoch {epoch} begins at {start}, the broker does not")

    def _note_epochs(self, offset: int, text: str) -> None:
        s = self._segment
        file = f"{os.path.dirname(s.name)}/{LEADER_EPOCHS}"
        self.findings.append(Finding(BAD, "epochs", s.topic, s.partition, s.replica, file, -1, offset, text))

    def _check_offset_index(self, headers: Array, last: Array) -> None:
        entries = self._entries("index", np.dtype([("offset", ">i4"), ("position", ">i4")]))
        offsets = entries["offset"].astype(np.int64) + self._segment.base_offset
        positions = entries["position"].astype(np.int64)
        if not self._ascends("index", offsets, positions):
            return
        starts = headers[:, k.POSITION].tolist()
        # Kafka indexes an append by the last offset of its last batch and the position of its first.
        ends = np.isin(offsets, last) | self._work.compacted
        for number, (offset, position) in enumerate(zip(offsets.tolist(), positions.tolist(), strict=True)):
            row = bisect.bisect_left(starts, position)
            text = f"entry {number} ({offset} at {position})"
            if row == len(starts) or starts[row] != position:
                self._note(BAD, "index", number * 8, offset, f"{text} points at no batch", ".index")
            elif not headers[row, k.BASE_OFFSET] <= offset <= last[-1]:
                found = f"{text} points at a batch that begins at {int(headers[row, k.BASE_OFFSET])}"
                self._note(BAD, "index", number * 8, offset, found, ".index")
            elif not ends[number]:
                self._note(BAD, "index", number * 8, offset, f"{text} is not where a batch ends", ".index")
            elif number + 1 < len(positions) and offset >= _base_at(headers, starts, int(positions[number + 1])):
                found = f"{text} reaches into what the next entry points at"
                self._note(BAD, "index", number * 8, offset, found, ".index")

    def _check_time_index(self, headers: Array, last: Array) -> None:
        entries = self._entries("timeindex", np.dtype([("timestamp", ">i8"), ("offset", ">i4")]))
        timestamps = entries["timestamp"].astype(np.int64)
        offsets = entries["offset"].astype(np.int64) + self._segment.base_offset
        if not self._ascends("timeindex", timestamps, offsets, strictly=True):
            return
        latest = np.maximum.accumulate(headers[:, k.MAX_TIMESTAMP]) if len(headers) else np.empty(0, np.int64)
        for number, (timestamp, offset) in enumerate(zip(timestamps.tolist(), offsets.tolist(), strict=True)):
            # A search for `timestamp` + 1 starts at `offset`: nothing that ends before it may be later.
            before = int(np.searchsorted(last, offset)) - 1
            text = f"entry {number} ({timestamp} at {offset})"
            if not len(last) or offset > last[-1]:
                self._note(BAD, "timeindex", number * 12, offset, f"{text} lies behind the segment's end", ".timeindex")
            elif before >= 0 and latest[before] > timestamp:
                found = f"{text} skips a record of {int(latest[before])}"
                self._note(BAD, "timeindex", number * 12, offset, found, ".timeindex")
            elif timestamp != headers[before + 1, k.MAX_TIMESTAMP]:
                found = f"{text}: the batch there has {int(headers[before + 1, k.MAX_TIMESTAMP])}"
                self._note(WARN, "timeindex", number * 12, offset, found, ".timeindex")
        if len(latest) and len(timestamps) and timestamps[-1] < latest[-1]:
            text = f"its last entry is {int(timestamps[-1])}, the segment's largest timestamp {int(latest[-1])}"
            self._note(WARN, "timeindex", -1, -1, text, ".timeindex")

    def _entries(self, kind: str, entry: np.dtype[Any]) -> Array:
        data = self._segment.read_all(kind)
        extra = len(data) % entry.itemsize
        if extra:
            text = f"{len(data)} bytes are not whole entries of {entry.itemsize}"
            self._note(BAD, kind, len(data) - extra, -1, text, f".{kind}")
        return np.frombuffer(data[: len(data) - extra], entry)

    def _ascends(self, kind: str, first: Array, second: Array, strictly: bool = False) -> bool:
        falls = (np.diff(first) <= 0) | ((np.diff(second) < 0) if strictly else (np.diff(second) <= 0))
        for number in np.flatnonzero(falls)[:1].tolist():
            text = f"entry {number + 1} is not larger than the one before"
            self._note(BAD, kind, -1, int(second[number + 1]) if strictly else int(first[number + 1]), text, f".{kind}")
        return not falls.any()

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
        arrays = [pa.array(np.ascontiguousarray(column)) for column in columns.values()]
        return pa.RecordBatch.from_arrays(arrays, schema=BATCH_SCHEMA)


def _base_at(headers: Array, starts: list[int], position: int) -> int:
    """The base offset of the batch at a position, or of the one behind it."""
    row = min(bisect.bisect_left(starts, position), len(starts) - 1)
    return int(headers[row, k.BASE_OFFSET])
