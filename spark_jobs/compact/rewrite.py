"""Pass 2 of a compaction, inside one task: writes the surviving records of one replica's segments into new files.

The rules are those of broker/compaction; here they run over chunks of arrays. This module uses neither Spark nor
leases.
"""

import hashlib
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, Any

import numpy as np
from crc32c import crc32c

from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.ranges import SegmentRange, group_segments
from logyard.broker.compaction.rewrite import Tally, end_placeholder, rewrite_batch
from logyard.broker.records import compression
from logyard.broker.records.header import parse_header
from logyard.spark_jobs.compact import rewrite_kernels as rk
from logyard.spark_jobs.compact.survey import (
    trusted_chunks,
)
from logyard.spark_jobs.segments import kernels as k
from logyard.spark_jobs.segments.chunks import (
    Chunk,
    CorruptBatch,
    check_crcs,
    open_payloads,
)
from logyard.spark_jobs.segments.files import SegmentFile
from logyard.spark_jobs.segments.kernels import Array

_CODEC_MASK = 0x07


@dataclass(frozen=True, slots=True)
class Part:
    """A file that replaces adjacent segments: its path, and its fields in the commit (docs/leases.md, `groups`)."""

    segments: tuple[int, ...]
    path: str
    size: int
    sha256: str
    last_offset: int
    records: int
    bytes_in: int

    def to_group(self) -> dict[str, Any]:
        """Return the part as one of the commit's groups."""
        part = {"size": self.size, "sha256": self.sha256, "last_offset": self.last_offset, "records": self.records}
        return {"segments": list(self.segments), "part": part}


@dataclass(slots=True)
class RewriteResult:
    """Result of pass 2 for one replica: the parts, and sums over all segments that it read."""

    parts: list[Part]
    bytes_in: int = 0
    bytes_out: int = 0
    records_in: int = 0
    records_out: int = 0
    batches_in: int = 0
    batches_verbatim: int = 0


def plan_groups(segments: Sequence[SegmentFile], decision: Decision, config: dict[str, Any]) -> list[list[SegmentFile]]:
    """Return the groups of closed segments that pass 2 rewrites: those that hold offsets of the decision's range."""
    touched = [
        s
        for s in segments
        if not s.active and s.base_offset < decision.range_end and s.last_offset >= decision.range_start
    ]
    by_base = {s.base_offset: s for s in touched}
    ranges = [SegmentRange(s.base_offset, s.last_offset, s.size, -1, s.files.get("index", 0)) for s in touched]
    groups = group_segments(
        ranges,
        segment_bytes=int(config.get("segment.bytes", 2**30)),
        index_bytes=int(config.get("segment.index.bytes", 10 * 2**20)),
    )
    return [[by_base[r.base_offset] for r in group] for group in groups]


class Rewriter:
    """Writes the part of each group of one replica's segments into `directory`; `result` has the parts and sums."""

    def __init__(self, decision: Decision, directory: str) -> None:
        self._decision = decision
        self._directory = directory
        self._survivors, self._stamped, self._kept = (
            np.frombuffer(s.values, np.int64) if len(s) else np.empty(0, np.int64)
            for s in (decision.survivors, decision.stamped, decision.kept_batches)
        )
        self.result = RewriteResult(parts=[])

    def rewrite(self, group: Sequence[SegmentFile]) -> Part | None:
        """Write one group's part, `<base>.part` (under a temporary name, then renamed); None if nothing would
        change."""
        base = group[0].base_offset
        temporary = os.path.join(self._directory, f"{base:020d}.{uuid.uuid4().hex}.tmp")
        digest = hashlib.sha256()
        before = self.result.batches_verbatim, self.result.batches_in, self.result.records_out, self.result.bytes_in
        try:
            with open(temporary, "xb") as file:
                size, last_offset = self._write(group, file, digest.update)
                verbatim = self.result.batches_verbatim - before[0] == self.result.batches_in - before[1]
                bytes_in = self.result.bytes_in - before[3]
                if len(group) == 1 and verbatim:
                    return None
                file.flush()
                os.fsync(file.fileno())
            path = os.path.join(self._directory, f"{base:020d}.part")
            os.replace(temporary, path)
        finally:
            if os.path.exists(temporary):
                os.unlink(temporary)
        records = self.result.records_out - before[2]
        bases = tuple(s.base_offset for s in group)
        part = Part(bases, path, size, digest.hexdigest(), last_offset, records, bytes_in)
        self.result.parts.append(part)
        return part

    def _write(
        self, group: Sequence[SegmentFile], file: IO[bytes], digest: Callable[[memoryview], None]
    ) -> tuple[int, int]:
        size, last_offset = 0, group[0].base_offset - 1
        for name, chunk, ends_group in _with_last(group):
            for piece, last in self._rewrite_chunk(name, chunk, ends_group):
                file.write(piece)
                digest(piece)
                size += len(piece)
                last_offset = max(last_offset, last)
        self.result.bytes_in += sum(s.size for s in group)
        self.result.bytes_out += size
        return size, last_offset

    def _rewrite_chunk(self, name: str, chunk: Chunk, ends_group: bool) -> Iterator[tuple[memoryview, int]]:
        for damage in check_crcs(chunk):
            raise CorruptBatch(damage, name)
        runs = list(_by_format(chunk))
        for number, run in enumerate(runs):
            is_last = ends_group and number == len(runs) - 1
            if run.headers[0, k.MAGIC] == 2:
                yield from self._rewrite_batches(name, run, is_last)
            else:
                yield from self._rewrite_messages(run, is_last)

    def _rewrite_messages(self, chunk: Chunk, ends_group: bool) -> Iterator[tuple[memoryview, int]]:
        """Rewrite messages before v2, by the rules of broker/compaction in plain Python."""
        tally = Tally()
        for index, row in enumerate(chunk.headers.tolist()):
            batch = chunk.batch(index)
            header = parse_header(batch)._replace(
                base_offset=row[k.BASE_OFFSET], last_offset_delta=row[k.LAST_DELTA], count=row[k.COUNT]
            )
            is_end = ends_group and index == len(chunk.headers) - 1
            outcome = rewrite_batch(batch, header, self._decision, ends_group=is_end, tally=tally)
            if outcome is None:
                continue
            yield memoryview(outcome), parse_header(outcome).last_offset
            end = end_placeholder(header, outcome) if is_end else None
            if end is not None:
                yield memoryview(end), header.last_offset
        self.result.batches_in += tally.batches_in
        self.result.batches_verbatim += tally.batches_verbatim
        self.result.records_in += tally.records_in
        self.result.records_out += tally.records_out

    def _rewrite_batches(self, name: str, chunk: Chunk, ends_group: bool) -> Iterator[tuple[memoryview, int]]:
        headers, decision = chunk.headers, self._decision
        plan = np.zeros((len(headers), rk.PLAN_COLUMNS), np.int64)
        rk.judge_batches(
            headers,
            self._survivors,
            self._stamped,
            self._kept,
            decision.range_start,
            decision.range_end,
            ends_group,
            plan,
        )
        for damage in open_payloads(chunk, plan[:, rk.KIND] == rk.FILTER):
            raise CorruptBatch(damage, name)
        assert chunk.payloads is not None
        grown = k.HEADER_SIZE + (chunk.payloads[:, 1] - chunk.payloads[:, 0]) + rk.GROWTH_MAX * headers[:, k.COUNT]
        out = np.empty(int(np.maximum(headers[:, k.LENGTH], grown).sum()), np.uint8)
        damaged, fault = rk.write_batches(
            chunk.data,
            chunk.raw,
            chunk.payloads,
            headers,
            self._survivors,
            self._kept,
            decision.horizon_ms,
            ends_group,
            plan,
            out,
        )
        if damaged >= 0:
            raise CorruptBatch(chunk.damage(damaged, k.FAULT_TEXT[fault]), name)
        self._tally(headers, plan)
        yield from _finished(headers, plan, out)

    def _tally(self, headers: Array, plan: Array) -> None:
        self.result.batches_in += len(headers)
        self.result.records_in += int(headers[:, k.COUNT].sum())
        self.result.records_out += int(plan[:, rk.OUT_COUNT].sum())
        self.result.batches_verbatim += int((plan[:, rk.KIND] == rk.VERBATIM).sum())


def _with_last(group: Sequence[SegmentFile]) -> Iterator[tuple[str, Chunk, bool]]:
    """Yield (segment's name, chunk, whether the chunk is the group's last)."""
    pending: tuple[str, Chunk] | None = None
    for segment in group:
        for chunk in trusted_chunks(segment):
            if pending is not None:
                yield *pending, False
            pending = segment.where, chunk
    if pending is not None:
        yield *pending, True


def _by_format(chunk: Chunk) -> Iterator[Chunk]:
    """Cut a chunk into runs of v2 batches and runs of older messages."""
    if not chunk.old_payloads:
        yield chunk
        return
    is_old = chunk.headers[:, k.MAGIC] != 2
    cuts = [0, *(np.flatnonzero(np.diff(is_old)) + 1).tolist(), len(is_old)]
    for start, end in pairwise(cuts):
        rows = np.arange(len(is_old))
        yield chunk.select((rows >= start) & (rows < end))


def _finished(headers: Array, plan: Array, out: Array) -> Iterator[tuple[memoryview, int]]:
    """Yield the output in order, in runs as long as possible: with checksums, and filtered batches compressed again."""
    view = memoryview(out)
    run_start = 0
    last_offsets = headers[:, k.BASE_OFFSET] + headers[:, k.LAST_DELTA]
    written = plan[:, rk.KIND] != rk.DROPPED
    rebuilt = written & (plan[:, rk.KIND] != rk.VERBATIM)
    last = int(last_offsets[written].max()) if written.any() else -1
    for index in np.flatnonzero(rebuilt).tolist():
        start, end = int(plan[index, rk.OUT_START]), int(plan[index, rk.OUT_END])
        codec = int(headers[index, k.ATTRIBUTES]) & _CODEC_MASK
        if codec and plan[index, rk.KIND] == rk.FILTER:
            if start > run_start:
                yield view[run_start:start], last
            packed = bytearray(view[start : start + k.HEADER_SIZE])
            packed += compression.compress(codec, view[start + k.HEADER_SIZE : end])
            packed[8:12] = (len(packed) - 12).to_bytes(4, "big")
            _seal(memoryview(packed))
            yield memoryview(packed), last
            run_start = end
        else:
            _seal(view[start:end])
    stop = int(plan[-1, rk.OUT_END])
    if stop > run_start:
        yield view[run_start:stop], last


def _seal(batch: memoryview) -> None:
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
