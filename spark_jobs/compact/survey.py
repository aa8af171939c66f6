"""Pass 1 of a compaction, inside one task: decides from the leader's segments which records of a partition survive.

The rules are those of broker/compaction; here they run over chunks of arrays. This module uses neither Spark nor
leases.
"""

from array import array
from collections.abc import Iterator, Sequence

import numpy as np

from logyard.broker.compaction.batch_facts import batch_facts
from logyard.broker.compaction.decision import OLD_FORMAT, Survey
from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.offset_set import OffsetSet
from logyard.broker.records.header import parse_header
from logyard.spark_jobs.compact.key_table import KeyTable
from logyard.spark_jobs.segments import kernels as k
from logyard.spark_jobs.segments.chunks import (
    Chunk,
    CorruptBatch,
    Damage,
    open_trusted,
    read_chunks,
)
from logyard.spark_jobs.segments.files import SegmentFile
from logyard.spark_jobs.segments.kernels import Array

_CONTROL_OR_TRANSACTIONAL = 0x30


def survey_segments(segments: Sequence[SegmentFile], survey: Survey, table: KeyTable) -> Decision:
    """Run pass 1; returns the decision: which offsets survive.

    Raises CorruptBatch naming file, position and offset, and TooManyKeys.
    """
    for segment in segments:
        for chunk, wanted in judged_chunks(segment, survey):
            for offset, index in feed(table, chunk, wanted, segment.where)[:, :2].tolist():
                row = chunk.headers[index]
                survey.tombstone(offset, int(flags_of(row)), int(row[k.BASE_TIMESTAMP]))
    survey.keyless = table.keyless
    return survey.decide_offsets(offset_set(table.drain()))


def flags_of(headers: Array) -> Array:
    """Return the attributes that `Survey.tombstone` takes, of one header row or of each."""
    return headers[..., k.ATTRIBUTES] | np.where(headers[..., k.MAGIC] < 2, OLD_FORMAT, 0)


def judged_chunks(segment: SegmentFile, survey: Survey) -> Iterator[tuple[Chunk, Array]]:
    """Yield a segment's chunks, checked and decompressed, and which of their batches go to the key table."""
    for chunk in trusted_chunks(segment):
        open_trusted(chunk, segment.where)
        yield chunk, wanted_batches(chunk, survey)


def feed(table: KeyTable, chunk: Chunk, wanted: Array, name: str) -> Array:
    """Feed the wanted batches to the table; returns the tombstones as KeyTable.feed does. Raises CorruptBatch."""
    if not wanted.any():
        return np.empty((0, 3), np.int64)
    tombstones, damaged, fault = table.feed(chunk.raw, chunk.payloads, chunk.headers, wanted)
    if damaged >= 0:
        raise CorruptBatch(chunk.damage(damaged, k.FAULT_TEXT[fault]), name)
    return tombstones


def trusted_chunks(segment: SegmentFile) -> Iterator[Chunk]:
    """Yield the chunks of a segment; raises CorruptBatch at bytes that cannot be a batch."""
    for chunk in read_chunks(segment.open()):
        if isinstance(chunk, Damage):
            raise CorruptBatch(chunk, segment.where)
        yield chunk


def wanted_batches(chunk: Chunk, survey: Survey) -> Array:
    """Return a mask of the batches whose keys go to the key table; control and transactional batches, and the last ones
    of producers, are passed to the survey one by one."""
    headers = chunk.headers
    last_of_producers = np.array(sorted({p.last_offset for p in survey.producers.values()}), np.int64)
    wanted = headers[:, k.BASE_OFFSET] < survey.range_end
    last_offsets = headers[:, k.BASE_OFFSET] + headers[:, k.LAST_DELTA]
    special = (headers[:, k.ATTRIBUTES] & _CONTROL_OR_TRANSACTIONAL) != 0
    if len(last_of_producers):
        special |= np.isin(last_offsets, last_of_producers) & (headers[:, k.PRODUCER_ID] >= 0)
    for index in np.flatnonzero(special).tolist():
        batch = chunk.batch(index)
        wanted[index] = survey.batch(batch_facts(parse_header(batch), batch))
    return wanted


def offset_set(values: Array) -> OffsetSet:
    """Return ascending int64 offsets as the set that decisions carry."""
    flat = array("q")
    flat.frombytes(np.ascontiguousarray(values, np.int64).tobytes())
    return OffsetSet(flat, is_sorted=True)
