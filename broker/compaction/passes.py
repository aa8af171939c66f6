"""Both passes of a compaction over batches in offset order. Nothing is read from disk or written here."""

from collections.abc import Iterable, Iterator

from logyard.broker.compaction.batch_facts import batch_facts
from logyard.broker.compaction.decision import KeyMap, Survey, flags_of
from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.old_formats import OddOffsets, keys
from logyard.broker.compaction.rewrite import Tally, end_placeholder, rewrite_batch
from logyard.broker.records.header import BatchHeader

Batch = tuple[BatchHeader, memoryview]
"""A batch's header (of an old message: completed), and all of its bytes."""


def survey_batches(batches: Iterable[Batch], survey: Survey, key_map: KeyMap) -> Decision:
    """Run pass 1 over batches; raises CorruptData on one that does not parse."""
    for header, batch in batches:
        if not survey.batch(batch_facts(header, batch)):
            continue
        try:
            _take(header, batch, survey, key_map)
        except OddOffsets:
            survey.whole(header.last_offset)
    return survey.decide(key_map)


def _take(header: BatchHeader, batch: memoryview, survey: Survey, key_map: KeyMap) -> None:
    for offset, key, has_value in keys(batch, header):
        if key is None:
            survey.keyless += 1
            continue
        key_map.put(key, offset)
        if not has_value:
            survey.tombstone(offset, flags_of(header), header.base_timestamp)


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
        header, batch = pending
        outcome = rewrite_batch(batch, header, decision, ends_group=True, tally=tally)
        if outcome is not None:
            yield outcome
            end = end_placeholder(header, outcome)
            if end is not None:
                tally.batches_out += 1
                yield end
