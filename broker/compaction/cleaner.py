"""Both passes over the bytes of segments, in plain Python: what the broker's own cleaner runs, and the oracle of
the Spark jobs.

Buffers are whole segment logs (mapped files or bytes), in offset order. Nothing is read or written here.
"""

from collections.abc import Iterable, Iterator

from logyard.broker.compaction.decision import Decision
from logyard.broker.compaction.rewrite import Tally, rewrite_batch
from logyard.broker.compaction.survey import CONTROL, BatchFacts, KeyMap, Survey
from logyard.broker.errors import CorruptData
from logyard.broker.records import compression
from logyard.broker.records.header import HEADER_SIZE, BatchHeader, iter_headers
from logyard.broker.records.varint import read_varint

_CODEC_MASK = 0x07


def survey_segments(buffers: Iterable[memoryview], survey: Survey, keys: KeyMap) -> Decision:
    """Run pass 1 over the leader's segments; raises CorruptData on a batch that does not parse."""
    for buffer in buffers:
        for position, header in iter_headers(buffer):
            batch = buffer[position : position + header.length]
            facts = batch_facts(header, batch)
            if not survey.batch(facts):
                continue
            for offset, key, has_value in keyed_records(header, batch):
                if key is None:
                    survey.keyless += 1
                    continue
                keys.put(key, offset)
                if not has_value:
                    survey.tombstone(offset, header.attributes, header.base_timestamp)
    return survey.decide(keys)


def rewrite_group(buffers: Iterable[memoryview], decision: Decision, tally: Tally) -> Iterator[bytes | memoryview]:
    """Run pass 2 over the segments of one group; yields the batches of the one segment that replaces them."""
    pending: tuple[BatchHeader, memoryview] | None = None
    for buffer in buffers:
        for position, header in iter_headers(buffer):
            if pending is not None:
                outcome = rewrite_batch(pending[1], pending[0], decision, ends_group=False, tally=tally)
                if outcome is not None:
                    yield outcome
            pending = header, buffer[position : position + header.length]
    if pending is not None:
        outcome = rewrite_batch(pending[1], pending[0], decision, ends_group=True, tally=tally)
        if outcome is not None:
            yield outcome


def batch_facts(header: BatchHeader, batch: memoryview) -> BatchFacts:
    """Return what the survey asks of a batch; control batches are opened for their marker type."""
    if header.magic != 2:
        raise CorruptData(f"batch at offset {header.base_offset}: message format v{header.magic} cannot be compacted")
    return BatchFacts(
        header.base_offset,
        header.base_offset + header.last_offset_delta,
        header.attributes,
        header.base_timestamp,
        header.producer_id,
        header.producer_epoch,
        marker_type(header, batch) if header.attributes & CONTROL else None,
    )


def marker_type(header: BatchHeader, batch: memoryview) -> int | None:
    """Return the type in a control batch's first record (key: int16 version, int16 type), None when it holds no
    record."""
    if header.count == 0:
        return None
    for _offset, key, _has_value in keyed_records(header, batch):
        if key is None or len(key) < 4:
            break
        return int.from_bytes(key[2:4], "big", signed=True)
    raise CorruptData(f"control batch at offset {header.base_offset}: its key is not a version and a type")


def keyed_records(header: BatchHeader, batch: memoryview) -> Iterator[tuple[int, memoryview | None, bool]]:
    """Yield offset, key (a view) and whether there is a value, of each record; raises CorruptData."""
    codec = header.attributes & _CODEC_MASK
    packed = batch[HEADER_SIZE:]
    payload = memoryview(compression.decompress(codec, packed) if codec else packed)
    position = 0
    try:
        for _ in range(header.count):
            length, position = read_varint(payload, position)
            end = position + length
            if length < 0 or end > len(payload):
                raise IndexError
            _timestamp, position = read_varint(payload, position + 1)
            delta, position = read_varint(payload, position)
            key_size, position = read_varint(payload, position)
            key = payload[position : position + key_size] if key_size >= 0 else None
            value_size, position = read_varint(payload, position + max(key_size, 0))
            if position + max(value_size, 0) > end:
                raise IndexError
            yield header.base_offset + delta, key, value_size >= 0
            position = end
    except IndexError:
        raise CorruptData(f"batch at offset {header.base_offset}: a record runs over its end") from None
