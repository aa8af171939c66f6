"""Exporting: which offsets go into which file, and reading one file's share of the log. Nothing here knows of Spark
or leases."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from logyard.broker.errors import CorruptData, LogyardError
from logyard.broker.records.header import HEADER_SIZE, parse_header
from logyard.spark_jobs.export.manifest import Manifest, TopicProgress
from logyard.spark_jobs.segments import kernels as k
from logyard.spark_jobs.segments.chunks import (
    RECORD_SCHEMA,
    Chunk,
    CorruptBatch,
    Damage,
    Source,
    check_crcs,
    open_checked,
    read_chunks,
    record_batch,
    visible,
    walk,
)
from logyard.spark_jobs.segments.digests import record_hashes
from logyard.spark_jobs.segments.epochs import UNKNOWN, epoch_before, kept_until
from logyard.spark_jobs.segments.files import SegmentFile
from logyard.spark_jobs.segments.indexes import byte_window
from logyard.spark_jobs.segments.kernels import Array
from logyard.spark_jobs.segments.replicas import Replica

COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
OWNER_SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32())])
SPLIT_BYTES = 64 * 1024 * 1024
_CONTROL = 0x20


class ExportRefused(LogyardError):
    """An export would lose or double rows, or mix two logs; the text says what happened and which option goes on."""


@dataclass(frozen=True, slots=True)
class Range:
    """The offsets [start, end) of one partition that this run exports."""

    replica: Replica
    start: int
    end: int

    @property
    def epoch(self) -> int:
        """The leader epoch of the last record of these, UNKNOWN where there is none or the log does not tell."""
        return epoch_before(self.replica.leader_epochs, self.end) if self.start < self.end else UNKNOWN


@dataclass(frozen=True, slots=True)
class Split:
    """One file's share: bytes [position, position_end) of one segment, offsets [start, end).

    `newer_ms`: batches whose newest record is older need not be opened (None: all are); `control`: transaction
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
        """Bytes of the log."""
        return self.position_end - self.position

    @property
    def name(self) -> str:
        return f"p-{self.start:020d}-{self.end:020d}-{self.plan_hash}.parquet"


def plan_range(
    replica: Replica, manifest: Manifest, *, committed_only: bool, allow_data_loss: bool, accept_new_topic: bool
) -> Range:
    """Return what to export of one partition; raises ExportRefused (see there)."""
    if replica.watermark_trouble:
        raise ExportRefused(f"{replica.tp}: {replica.watermark_trouble}")
    if manifest.cluster_id is not None and replica.cluster_id is not None and manifest.cluster_id != replica.cluster_id:
        raise ExportRefused(
            f"this directory holds an export of cluster {manifest.cluster_id}, not of {replica.cluster_id}:"
            " use another --destination"
        )
    known = manifest.topics.get(replica.topic)
    if known is not None and known.topic_id != replica.topic_id:
        if not accept_new_topic:
            raise ExportRefused(
                f"topic {replica.topic} was deleted and made again since it was exported (id {known.topic_id}, now"
                f" {replica.topic_id}): --accept-new-topic exports the new one from its start"
            )
        known = None
    start = None if known is None else known.next_offsets.get(replica.partition)
    if known is not None and start is not None:
        _check_kept(replica, start, known.epochs.get(replica.partition, UNKNOWN), allow_data_loss=allow_data_loss)
    start = replica.log_start_offset if start is None else start
    if start < replica.log_start_offset:
        if not allow_data_loss:
            raise ExportRefused(
                f"{replica.tp}: offsets {start} to {replica.log_start_offset - 1} were deleted before they were"
                " exported: --allow-data-loss goes on behind them"
            )
        start = replica.log_start_offset
    end = replica.high_watermark
    if committed_only and replica.last_stable_offset >= 0:
        end = min(end, replica.last_stable_offset)
    # Right after a failover the leader's high watermark lags behind what was exported: there is nothing to do yet.
    return Range(replica, start, max(start, end))


def progress(ranges: Sequence[Range], schema: str) -> dict[str, TopicProgress]:
    """Return how far topics are exported when these ranges are, by name."""
    offsets: dict[str, dict[int, int]] = defaultdict(dict)
    epochs: dict[str, dict[int, int]] = defaultdict(dict)
    for span in ranges:
        offsets[span.replica.topic][span.replica.partition] = span.end
        if span.epoch != UNKNOWN:
            epochs[span.replica.topic][span.replica.partition] = span.epoch
    ids = {span.replica.topic: span.replica.topic_id for span in ranges}
    return {name: TopicProgress(ids[name], offsets[name], schema, epochs[name]) for name in offsets}


def _check_kept(replica: Replica, start: int, epoch: int, *, allow_data_loss: bool) -> None:
    """Raise ExportRefused where the log no longer holds what was exported up to `start`, whose last record had this
    leader epoch, or where the replica is not the one to say so."""
    if 0 <= replica.leader_epoch < epoch:
        raise ExportRefused(
            f"{replica.tp}: broker {replica.broker_id} leads it in epoch {replica.leader_epoch}, and epoch {epoch} was"
            " exported: another leads it by now; run the export again"
        )
    log_end = replica.log_end_offset if replica.log_end_offset >= 0 else replica.high_watermark
    kept = kept_until(replica.leader_epochs, log_end, start, epoch)
    if kept < start and not allow_data_loss:
        raise ExportRefused(
            f"{replica.tp}: it was exported up to {start}, and from {kept} on the log has lost these records, others"
            f" may stand there (an unclean election?): --allow-data-loss goes on at {start}"
        )


def plan_splits(
    span: Range, *, committed_only: bool, columns: Sequence[str], split_bytes: int = SPLIT_BYTES, words: str = ""
) -> Iterator[Split]:
    """Cut a range into files: by segment, and large segments at index entries. The same range gives the same files.

    :param words: what else tells the files of one plan from another's.
    """
    r = span.replica
    aborted = tuple((a.producer_id, a.first_offset, a.last_offset) for a in r.aborted)
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
                near = tuple(a for a in aborted if a[1] < end and a[2] >= start)
                yield Split(
                    segment, position, position_end, start, end, near, committed_only, tuple(columns), plan_hash
                )


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


def _first_offset(source: Source, position: int, segment: SegmentFile) -> int:
    """The first offset of the batch at a position: what says so of an old message lies inside it."""
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

    What lies behind the last offset wanted may be torn or filled with zeros, as a crash leaves it. Raises CorruptBatch,
    or CorruptData for what cannot be made columns, naming topic, partition, segment and offset.
    """
    where = split.segment.where
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
        # Before a header is believed that says its batch is nothing to a consumer.
        for damage in check_crcs(chunk.select(mine)):
            raise CorruptBatch(damage, where)
        mask = visible(headers, split.aborted, committed_only=split.committed_only)
        if split.control:
            mask |= headers[:, k.ATTRIBUTES] & _CONTROL != 0
        mask &= mine
        if split.newer_ms is not None:
            mask &= headers[:, k.MAX_TIMESTAMP] >= split.newer_ms
        if not mask.any():
            continue
        part = open_checked(chunk.select(mask), where)
        records = walk(part, where)
        inside = (records[:, k.OFFSET] >= split.start) & (records[:, k.OFFSET] < split.end)
        records = records if inside.all() else records[inside]
        if len(records):
            yield _rows(split, part, records), record_hashes(part.raw, records) if hashed else None


def _check_order(chunk: Chunk, passed: int, split: Split, where: str) -> None:
    """Refuse a batch below the split's end whose offset does not follow all offsets before it in the file.

    No checksum covers a batch's offset, and a wrong one would hide the batch, or all that follow.
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


def check_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns; raises ExportRefused naming one that does not exist."""
    known = [*OWNER_SCHEMA.names, *RECORD_SCHEMA.names]
    for column in columns:
        if column not in known:
            raise ExportRefused(f"column {column!r} does not exist: choose among {', '.join(known)}")
    return tuple(columns)
