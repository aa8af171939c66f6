"""Both passes over the batches of segments: what the broker's own cleaner runs, and the oracle of the Spark jobs.

Segments come as whole buffers or, where they are read piece by piece, as batches; always in offset order. Nothing is
read or written here.
"""

from collections.abc import Iterable, Iterator

from logyard.broker.compaction.decision import Decision
from logyard.broker.compaction.facts import batch_facts
from logyard.broker.compaction.rewrite import Tally, rewrite_batch
from logyard.broker.compaction.survey import KeyMap, Survey
from logyard.broker.records import decode
from logyard.broker.records.header import BatchHeader, iter_headers

Batch = tuple[BatchHeader, memoryview]
"""A batch's header, and all of its bytes."""


def batches_of(buffers: Iterable[memoryview]) -> Iterator[Batch]:
    """Yield the batches of whole segments."""
    for buffer in buffers:
        for position, header in iter_headers(buffer):
            yield header, buffer[position : position + header.length]


def survey_segments(buffers: Iterable[memoryview], survey: Survey, keys: KeyMap) -> Decision:
    """Run pass 1 over the leader's segments; raises CorruptData on a batch that does not parse."""
    return survey_batches(batches_of(buffers), survey, keys)


def survey_batches(batches: Iterable[Batch], survey: Survey, keys: KeyMap) -> Decision:
    """Run pass 1 over batches; raises CorruptData on one that does not parse."""
    for header, batch in batches:
        if not survey.batch(batch_facts(header, batch)):
            continue
        for offset, key, has_value in decode.keys(batch, header):
            if key is None:
                survey.keyless += 1
                continue
            keys.put(key, offset)
            if not has_value:
                survey.tombstone(offset, header.attributes, header.base_timestamp)
    return survey.decide(keys)


def rewrite_group(buffers: Iterable[memoryview], decision: Decision, tally: Tally) -> Iterator[bytes | memoryview]:
    """Run pass 2 over the segments of one group; yields the batches of the one segment that replaces them."""
    return rewrite_batches(batches_of(buffers), decision, tally)


def rewrite_batches(batches: Iterable[Batch], decision: Decision, tally: Tally) -> Iterator[bytes | memoryview]:
    """Run pass 2 over the batches of one group."""
    pending: Batch | None = None
    for following in batches:
        if pending is not None:
            outcome = rewrite_batch(pending[1], pending[0], decision, ends_group=False, tally=tally)
            if outcome is not None:
                yield outcome
        pending = following
    if pending is not None:
        outcome = rewrite_batch(pending[1], pending[0], decision, ends_group=True, tally=tally)
        if outcome is not None:
            yield outcome
