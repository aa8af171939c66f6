"""Pass 1 of a compaction, inside one task: decides from the leader's segments which records of a partition survive.

The rules are those of broker/compaction; here they run over chunks of arrays. This module uses neither Spark nor
leases.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from logyard.broker.compaction.decision import Survey
from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compiled import kernels as k
from logyard.broker.compiled.chunk_survey import flags_of, offset_set, wanted_batches
from logyard.broker.compiled.chunks import Chunk, CorruptBatch, trusted_parts
from logyard.broker.compiled.kernels import Array
from logyard.broker.compiled.key_table import KeyTable
from logyard.spark_jobs.segments.files import SegmentFile


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


def judged_chunks(segment: SegmentFile, survey: Survey) -> Iterator[tuple[Chunk, Array]]:
    """Yield a segment's chunks, checked and decompressed in parts, and which of their batches go to the key table."""
    for chunk in segment.chunks():
        for part in trusted_parts(chunk, segment.where):
            yield part, wanted_batches(part, survey)


def feed(table: KeyTable, chunk: Chunk, wanted: Array, name: str) -> Array:
    """Feed the wanted batches to the table; returns the tombstones as KeyTable.feed does. Raises CorruptBatch."""
    if not wanted.any():
        return np.empty((0, 3), np.int64)
    tombstones, damaged, fault = table.feed(chunk.raw, chunk.payloads, chunk.headers, wanted)
    if damaged >= 0:
        raise CorruptBatch(chunk.damage(damaged, k.FAULT_TEXT[fault]), name)
    return tombstones
