"""Pass 2 of a compaction over chunks: the surviving records of each, as bytes in order.

The rules are those of broker/compaction/rewrite.py; here they run over arrays. Nothing is opened or written.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
from crc32c import crc32c

from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.rewrite import Tally, end_placeholder, rewrite_batch
from logyard.broker.compiled import kernels as k
from logyard.broker.compiled import rewrite_kernels as rk
from logyard.broker.compiled.chunks import Chunk, CorruptBatch, check_crcs, opened_parts
from logyard.broker.compiled.kernels import Array
from logyard.broker.records import compression
from logyard.broker.records.header import parse_header

_CODEC_MASK = 0x07

Piece = tuple[memoryview, int]
"""Whole batches, and the largest offset in or before them."""


class ChunkRewriter:
    """Applies one decision to chunks; `tally` counts what was done."""

    def __init__(self, decision: Decision, tally: Tally) -> None:
        self._decision = decision
        self._survivors, self._stamped, self._kept = (
            np.frombuffer(s.values, np.int64) if len(s) else np.empty(0, np.int64)
            for s in (decision.survivors, decision.stamped, decision.kept_batches)
        )
        self.tally = tally

    def rewrite(self, chunks: Iterable[tuple[str, Chunk]]) -> Iterator[Piece]:
        """Yield the new bytes of one group's chunks, each with its segment's name; raises CorruptBatch."""
        for name, chunk, ends_group in _with_last(chunks):
            yield from self._rewrite_chunk(name, chunk, ends_group)

    def _rewrite_chunk(self, name: str, chunk: Chunk, ends_group: bool) -> Iterator[Piece]:
        for damage in check_crcs(chunk):
            raise CorruptBatch(damage, name)
        runs = list(_by_format(chunk))
        for number, run in enumerate(runs):
            is_last = ends_group and number == len(runs) - 1
            if run.headers[0, k.MAGIC] == 2:
                yield from self._rewrite_batches(name, run, is_last)
            else:
                yield from self._rewrite_messages(run, is_last)

    def _rewrite_messages(self, chunk: Chunk, ends_group: bool) -> Iterator[Piece]:
        """Rewrite messages before v2, by the rules of broker/compaction in plain Python."""
        for index, row in enumerate(chunk.headers.tolist()):
            batch = chunk.batch(index)
            header = parse_header(batch)._replace(
                base_offset=row[k.BASE_OFFSET], last_offset_delta=row[k.LAST_DELTA], count=row[k.COUNT]
            )
            is_end = ends_group and index == len(chunk.headers) - 1
            outcome = rewrite_batch(batch, header, self._decision, ends_group=is_end, tally=self.tally)
            if outcome is None:
                continue
            yield memoryview(outcome), parse_header(outcome).last_offset
            end = end_placeholder(header, outcome) if is_end else None
            if end is not None:
                self.tally.batches_out += 1
                yield memoryview(end), header.last_offset

    def _rewrite_batches(self, name: str, chunk: Chunk, ends_group: bool) -> Iterator[Piece]:
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
        done = 0
        for part, damages in opened_parts(chunk, plan[:, rk.KIND] == rk.FILTER):
            for damage in damages:
                raise CorruptBatch(damage, name)
            rows = plan[done : done + len(part.headers)]
            done += len(rows)
            yield from self._write_batches(name, part, rows, ends_group and done == len(plan))

    def _write_batches(self, name: str, chunk: Chunk, plan: Array, ends_group: bool) -> Iterator[Piece]:
        headers, filtered = chunk.headers, plan[:, rk.KIND] == rk.FILTER
        assert chunk.payloads is not None
        grown = k.HEADER_SIZE + (chunk.payloads[:, 1] - chunk.payloads[:, 0]) + rk.GROWTH_MAX * headers[:, k.COUNT]
        # Of batches that are copied, nobody has looked at the count, which may say anything.
        grown = np.where(filtered, np.maximum(headers[:, k.LENGTH], grown), headers[:, k.LENGTH])
        out = np.empty(int(grown.sum()), np.uint8)
        damaged, fault = rk.write_batches(
            chunk.data,
            chunk.raw,
            chunk.payloads,
            headers,
            self._survivors,
            self._kept,
            self._decision.horizon_ms,
            ends_group,
            plan,
            out,
        )
        if damaged >= 0:
            raise CorruptBatch(chunk.damage(damaged, k.FAULT_TEXT[fault]), name)
        self._count(headers, plan)
        yield from _finished(headers, plan, out)

    def _count(self, headers: Array, plan: Array) -> None:
        self.tally.batches_in += len(headers)
        self.tally.batches_out += int((plan[:, rk.KIND] != rk.DROPPED).sum())
        self.tally.batches_verbatim += int((plan[:, rk.KIND] == rk.VERBATIM).sum())
        self.tally.records_in += int(headers[:, k.COUNT].sum())
        self.tally.records_out += int(plan[:, rk.OUT_COUNT].sum())


def _with_last(chunks: Iterable[tuple[str, Chunk]]) -> Iterator[tuple[str, Chunk, bool]]:
    """Yield (segment's name, chunk, whether the chunk is the group's last)."""
    pending: tuple[str, Chunk] | None = None
    for following in chunks:
        if pending is not None:
            yield *pending, False
        pending = following
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
        yield chunk.select(slice(start, end))


def _finished(headers: Array, plan: Array, out: Array) -> Iterator[Piece]:
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
