"""Splits: the part of the log that one task reads and one file holds, and reading it as Arrow.

This module uses neither Spark nor leases.
"""

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from logyard.broker.compiled import kernels as k
from logyard.broker.compiled.chunks import (
    AbortedSpans,
    ByteSource,
    Chunk,
    CorruptBatch,
    Damage,
    check_crcs,
    checked_parts,
    read_chunks,
    visible,
    walk,
)
from logyard.broker.compiled.kernels import Array
from logyard.broker.errors import CorruptData
from logyard.broker.records.header import HEADER_SIZE, parse_header
from logyard.spark_jobs.segments.arrow import RECORD_SCHEMA, record_batch
from logyard.spark_jobs.segments.digests import record_hashes
from logyard.spark_jobs.segments.epochs import UNKNOWN, epoch_before
from logyard.spark_jobs.segments.files import SegmentFile
from logyard.spark_jobs.segments.indexes import byte_window
from logyard.spark_jobs.segments.replicas import Replica

COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
OWNER_SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32())])
SPLIT_BYTES = 64 * 1024 * 1024
_CONTROL = 0x20


@dataclass(frozen=True, slots=True)
class Range:
    """The offsets [start, end) of one partition that a job reads."""

    replica: Replica
    start: int
    end: int

    @property
    def epoch(self) -> int:
        """The leader epoch of the range's last record, UNKNOWN if the range is empty or the epochs do not tell."""
        return epoch_before(self.replica.leader_epochs, self.end) if self.start < self.end else UNKNOWN


@dataclass(frozen=True, slots=True)
class Split:
    """The part of one task: bytes [position, position_end) of one segment, offsets [start, end).

    `newer_ms`: batches whose newest record is older need not be decompressed (None: read all); `control`: transaction
    markers are rows too.
    """

    segment: SegmentFile
    position: int
    position_end: int
    start: int
    end: int
    aborted: tuple[tuple[int, int, int], ...]
    committed_only: bool
    columns: tuple[str, ...]
    plan_hash: str
    newer_ms: int | None = None
    control: bool = False

    @property
    def size(self) -> int:
        """The size in bytes of the log."""
        return self.position_end - self.position

    @property
    def name(self) -> str:
        return f"p-{self.start:020d}-{self.end:020d}-{self.plan_hash}.parquet"


def plan_splits(
    span: Range, *, committed_only: bool, columns: Sequence[str], split_bytes: int = SPLIT_BYTES, words: str = ""
) -> Iterator[Split]:
    """Cut a range into splits: by segment, and large segments at index entries. The same range gives the same splits.

    :param words: text that goes into the splits' names, to tell plans apart that write other files for the same range.
    """
    r = span.replica
    aborted = _NearSpans((a.producer_id, a.first_offset, a.last_offset) for a in r.aborted)
    plan = [r.cluster_id, r.topic_id, r.topic, r.partition, committed_only, list(columns), split_bytes, words]
    plan_hash = hashlib.sha256(repr(plan).encode()).hexdigest()[:12]
    segments = list(r.segments)
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        stop = span.end if following is None else min(span.end, following.base_offset)
        if segment.base_offset >= span.end or stop <= span.start or not segment.size:
            continue
        cuts = [(0, segment.base_offset), *_cuts(segment, split_bytes), (segment.size, stop)]
        for (position, first), (position_end, after) in pairwise(cuts):
            start, end = max(first, span.start), min(after, stop)
            if start < end:
                if (start, end) != (first, after):
                    low, high = byte_window(segment, start, end)
                    position, position_end = max(position, low), min(position_end, high)
                near = aborted.within(start, end)
                yield Split(
                    segment, position, position_end, start, end, near, committed_only, tuple(columns), plan_hash
                )


class _NearSpans:
    """The aborted transactions that reach into ranges of offsets, which are asked for in ascending order: each is taken
    up once and put away once."""

    def __init__(self, aborted: Iterable[tuple[int, int, int]]) -> None:
        self._ahead = sorted(aborted, key=lambda a: a[1], reverse=True)
        self._open: list[tuple[int, tuple[int, int, int]]] = []

    def within(self, start: int, end: int) -> tuple[tuple[int, int, int], ...]:
        """Return those that reach into [start, end)."""
        while self._ahead and self._ahead[-1][1] < end:
            one = self._ahead.pop()
            heapq.heappush(self._open, (one[2], one))
        while self._open and self._open[0][0] < start:
            heapq.heappop(self._open)
        return tuple(one for _, one in sorted(self._open))


def _cuts(segment: SegmentFile, split_bytes: int) -> list[tuple[int, int]]:
    """Return (position, offset) of the batches where a large segment is cut."""
    if segment.size <= 2 * split_bytes:
        return []
    entries = np.frombuffer(segment.read_all("index"), np.dtype([("offset", ">i4"), ("position", ">i4")]))
    source = segment.open()
    cuts: list[tuple[int, int]] = []
    last = 0
    for position in entries["position"].tolist():
        if position - last >= split_bytes and segment.size - position >= split_bytes // 2:
            cuts.append((position, _first_offset(source, position, segment)))
            last = position
    return cuts


def _first_offset(source: ByteSource, position: int, segment: SegmentFile) -> int:
    """Return the first offset of the batch at a position; for a message before v2 it is read from its records."""
    header = parse_header(bytes(source.read(position, HEADER_SIZE)))
    if header.magic >= 2:
        return header.base_offset
    for chunk in read_chunks(source, position, position + header.length):
        if isinstance(chunk, Damage):
            raise CorruptBatch(chunk, segment.where)
        return int(chunk.headers[0, k.BASE_OFFSET])
    return header.base_offset


def split_rows(split: Split, *, hashed: bool = False) -> Iterator[tuple[pa.RecordBatch, Array | None]]:
    """Yield the visible records of a split as Arrow; with `hashed`, each record's digest beside it (digests.py).

    Bytes after the last offset of the split may be torn or zeros, as a crash leaves them. Raises CorruptBatch,
    or CorruptData for what cannot be made columns, naming topic, partition, segment and offset.
    """
    where, aborted = split.segment.where, AbortedSpans(split.aborted)
    passed = -1
    for chunk in read_chunks(split.segment.open(), split.position, split.position_end):
        if isinstance(chunk, Damage):
            if passed >= split.end - 1:
                return
            raise CorruptBatch(chunk, where)
        headers = chunk.headers
        last = headers[:, k.BASE_OFFSET] + headers[:, k.LAST_DELTA]
        _check_order(chunk, passed, split, where)
        passed = max(passed, int(last.max()))
        mine = (last >= split.start) & (headers[:, k.BASE_OFFSET] < split.end)
        # Check the batch before trusting its header, which may say that consumers do not see it.
        for damage in check_crcs(chunk.select(mine)):
            raise CorruptBatch(damage, where)
        mask = visible(headers, aborted, committed_only=split.committed_only)
        if split.control:
            mask |= headers[:, k.ATTRIBUTES] & _CONTROL != 0
        mask &= mine
        if split.newer_ms is not None:
            mask &= headers[:, k.MAX_TIMESTAMP] >= split.newer_ms
        if not mask.any():
            continue
        for part in checked_parts(chunk.select(mask), where):
            records = walk(part, where)
            inside = (records[:, k.OFFSET] >= split.start) & (records[:, k.OFFSET] < split.end)
            records = records if inside.all() else records[inside]
            if len(records):
                yield _rows(split, part, records), record_hashes(part.raw, records) if hashed else None


def _check_order(chunk: Chunk, passed: int, split: Split, where: str) -> None:
    """Raise CorruptBatch if a batch below the split's end does not begin after all offsets before it in the file.

    No checksum covers a batch's offset, and a wrong one would hide the batch or all that follow it.
    """
    base = chunk.headers[:, k.BASE_OFFSET]
    last = base + chunk.headers[:, k.LAST_DELTA]
    before = np.maximum.accumulate(np.concatenate([[passed], last[:-1]]))
    for index in np.flatnonzero((base <= before) & (base < split.end))[:1].tolist():
        raise CorruptBatch(chunk.damage(index, f"its offset follows offset {int(before[index])}"), where)


def _rows(split: Split, chunk: Chunk, records: Any) -> pa.RecordBatch:
    owner = {
        "topic": pa.array([split.segment.topic], pa.string()),
        "partition": pa.array([split.segment.partition], pa.int32()),
    }
    try:
        columns = [c for c in split.columns if c not in owner]
        plain = record_batch(chunk, records, columns, split.segment.where)
    except pa.ArrowException as error:
        first, last = int(records[0, k.OFFSET]), int(records[-1, k.OFFSET])
        raise CorruptData(f"{split.segment.where}: offsets {first} to {last}: {error}") from error
    zeros = pa.array(np.zeros(len(records), np.int32))
    arrays = [owner[c].take(zeros) if c in owner else plain.column(c) for c in split.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([field_of(c) for c in split.columns]))


def field_of(column: str) -> pa.Field:
    """Return a column's field; raises KeyError for one that does not exist."""
    return (OWNER_SCHEMA if column in OWNER_SCHEMA.names else RECORD_SCHEMA).field(column)
