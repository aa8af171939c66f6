"""What a survey needs to know of a batch, in plain Python, because the Spark jobs ship it to their executors."""

from logyard.broker.compaction.decision import CONTROL, BatchFacts
from logyard.broker.errors import CorruptData
from logyard.broker.records import compression
from logyard.broker.records.header import HEADER_SIZE, BatchHeader
from logyard.broker.records.varint import read_varint

_CODEC_MASK = 0x07


def batch_facts(header: BatchHeader, batch: memoryview) -> BatchFacts:
    """Return what the survey needs of a batch; only of a control batch are the bytes read, for its marker type.

    :param header: of an old message: as `old_formats.completed` returns it.
    :raises CorruptData: a control batch does not parse.
    """
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
    """Return the type in a control batch's first record (key: int16 version, int16 type), None if it has no record."""
    if header.count == 0:
        return None
    key = _first_key(header, batch)
    if len(key) < 4:
        raise CorruptData(f"control batch at offset {header.base_offset}: its key is not a version and a type")
    return int.from_bytes(key[2:4], "big", signed=True)


def _first_key(header: BatchHeader, batch: memoryview) -> memoryview:
    """Return the key of a batch's first record, empty if it has none; raises CorruptData."""
    codec = header.attributes & _CODEC_MASK
    packed = batch[HEADER_SIZE:]
    payload = memoryview(compression.decompress(codec, packed) if codec else packed)
    try:
        _length, position = read_varint(payload, 0)
        _timestamp, position = read_varint(payload, position + 1)
        _delta, position = read_varint(payload, position)
        size, position = read_varint(payload, position)
    except IndexError:
        size = position = len(payload) + 1
    if position + max(size, 0) > len(payload):
        raise CorruptData(f"batch at offset {header.base_offset}: a record runs over its end")
    return payload[position : position + max(size, 0)]
