"""The last stable offset, the aborted transactions and the log's end of a replica in a directory.

A lease has these; for the directory of a stopped broker, or a copy, they are computed.

Rule 1: a producer snapshot holds the transactions that were open at its offset; the batches after the latest usable
snapshot tell how they ended. Batches at or above the high watermark do not count: a transaction whose marker is there
is still open.
Rule 2: the last stable offset is where the first open transaction begins, or the high watermark.
Rule 3: aborted transactions are those in the transaction indexes, and those of the markers that were read. If an index
cannot be read, reading begins before its segment.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from logyard.broker.compaction.batch_facts import marker_type
from logyard.broker.compaction.transactions import ABORT_MARKER, COMMIT_MARKER, AbortedTransaction
from logyard.broker.compiled import kernels as k
from logyard.broker.compiled.chunks import Chunk, CorruptBatch, Damage, check_crcs, read_chunks
from logyard.broker.errors import CorruptData
from logyard.broker.log import layout
from logyard.broker.log.producers import NO_OFFSET, decode_snapshot
from logyard.broker.log.segment.index import decode_aborted
from logyard.broker.records.header import parse_header
from logyard.spark_jobs.segments.files import SegmentFile
from logyard.spark_jobs.segments.replicas import Replica

_TRANSACTIONAL, _CONTROL = 0x10, 0x20


def settled(replica: Replica) -> Replica:
    """Return a directory's replica with the log's end, the last stable offset and all aborted transactions; the high
    watermark is at most the log's end. A leased replica, or one with an unknown high watermark, is returned as it is.

    Raises CorruptBatch if a batch of a transaction below the high watermark is damaged.
    """
    if replica.lease is not None or replica.high_watermark < 0 or not replica.segments:
        return replica
    start, open_from = _snapshot(replica, min(replica.high_watermark, _first_unreadable(replica)))
    state = _State(replica.high_watermark, start, open_from)
    for segment, following in zip(replica.segments, [*replica.segments[1:], None], strict=True):
        if following is None or following.base_offset > start:
            state.take(segment)
    end = max(state.end, replica.segments[-1].base_offset)
    # Reading reports damage below the high watermark; without damage the log's end is known.
    high_watermark = replica.high_watermark if state.is_cut_short else min(replica.high_watermark, end)
    stable = min([high_watermark, *state.open_from.values()])
    aborted = tuple(sorted({*replica.aborted, *state.aborted}, key=lambda a: a.last_offset))
    return replace(
        replica,
        high_watermark=high_watermark,
        log_end_offset=end,
        last_stable_offset=max(stable, replica.log_start_offset),
        aborted=aborted,
    )


@dataclass(slots=True)
class _State:
    """The transactions that were open at `start`, updated by the batches from there to the high watermark."""

    high_watermark: int
    start: int
    open_from: dict[int, int]
    aborted: list[AbortedTransaction] = field(default_factory=list)
    end: int = 0
    is_cut_short: bool = False

    def take(self, segment: SegmentFile) -> None:
        """Update the state by a segment's batches."""
        for chunk in read_chunks(segment.open(), opens_old=False):
            if isinstance(chunk, Damage):
                self.is_cut_short = self.end < self.high_watermark
                return
            headers = chunk.headers
            last = headers[:, k.BASE_OFFSET] + headers[:, k.LAST_DELTA]
            self.end = max(self.end, int(last.max()) + 1)
            mask = (headers[:, k.MAGIC] == 2) & (headers[:, k.ATTRIBUTES] & (_TRANSACTIONAL | _CONTROL) != 0)
            mask &= (last >= self.start) & (headers[:, k.BASE_OFFSET] < self.high_watermark)
            if mask.any():
                self._take_batches(chunk.select(mask), segment.where)

    def _take_batches(self, chunk: Chunk, where: str) -> None:
        for damage in check_crcs(chunk):
            raise CorruptBatch(damage, where)
        for index, row in enumerate(chunk.headers.tolist()):
            producer, base = row[k.PRODUCER_ID], row[k.BASE_OFFSET]
            if not row[k.ATTRIBUTES] & _CONTROL:
                self.open_from.setdefault(producer, base)
                continue
            batch = chunk.batch(index)
            try:
                kind = marker_type(parse_header(batch), batch)
            except CorruptData as error:
                raise CorruptBatch(chunk.damage(index, str(error)), where) from error
            if kind not in (ABORT_MARKER, COMMIT_MARKER):
                continue
            first = self.open_from.pop(producer, None)
            if kind == ABORT_MARKER and first is not None:
                self.aborted.append(AbortedTransaction(producer, first, base + row[k.LAST_DELTA]))


def _first_unreadable(replica: Replica) -> int:
    """Return the base offset of the first segment whose transaction index cannot be read; a huge offset if all can."""
    for segment in replica.segments:
        try:
            decode_aborted(_read(replica.directory, layout.file_name(segment.base_offset, layout.TXN_INDEX)))
        except CorruptData:
            return segment.base_offset
    return 2**63 - 1


def _snapshot(replica: Replica, at_most: int) -> tuple[int, dict[int, int]]:
    """Return the offset of the latest readable producer snapshot up to an offset, and where the transactions begin that
    were open there; the log's first offset and nothing if there is none."""
    first = replica.segments[0].base_offset
    for offset in sorted(_snapshot_offsets(replica.directory), reverse=True):
        if first < offset <= at_most:
            try:
                entries = decode_snapshot(_read(replica.directory, layout.file_name(offset, layout.SNAPSHOT)))
            except CorruptData:
                continue
            return offset, {e.producer_id: e.txn_first_offset for e in entries if e.txn_first_offset != NO_OFFSET}
    return first, {}


def _snapshot_offsets(directory: str) -> Iterator[int]:
    for name in os.listdir(directory):
        found = layout.parse_file_name(name)
        if found is not None and found.kind == layout.SNAPSHOT and not found.suffix:
            yield found.offset


def _read(directory: str, name: str) -> bytes:
    try:
        with open(os.path.join(directory, name), "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""
