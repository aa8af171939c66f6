"""Pass 2 of a compaction: rewriting each batch of a replica's own log.

Rule 1: a batch that keeps all its records and needs no horizon is copied byte for byte.
Rule 2: base offset, last offset delta, producer id, epoch and sequence never change; the base timestamp changes only
for a delete horizon.
Rule 3: a batch left without records is removed, with two exceptions. If its producer's state needs it, an empty header
stays. If it is the last of its group, a placeholder of the same offsets stays, so that the new segment ends where the
old ones did. A placeholder has no producer and no flags: an empty transactional batch without its marker would look
like an open transaction when the log is loaded.
Rule 4: a wrapper of the old formats is filtered by old_formats.py. If it is the last of its group and loses its last
messages, a placeholder follows that ends where the group ended.
Rule 5: a batch whose records are not where it is (old_formats.OddOffsets) is copied byte for byte, unless it is removed
as a whole.
Source: facts §13; KIP-534; the end-of-group rule is ours (a shorter output could bring a replaced segment back).
"""

from collections.abc import Collection
from dataclasses import dataclass
from struct import pack_into
from typing import NamedTuple

from logyard.broker.compaction.decision import HORIZON
from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.old_formats import OLDEST_WITH_HORIZON, OddOffsets, filtered
from logyard.broker.errors import CorruptData
from logyard.broker.records import compression, decompression_stream
from logyard.broker.records.crc import crc32c
from logyard.broker.records.header import CRC_AT, HEADER, HEADER_SIZE, LOG_OVERHEAD, BatchHeader, parse_header
from logyard.broker.records.varint import read_varint, wrapped, write_varint

_CRC_START = 21
_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_MAGIC = 2


@dataclass(slots=True)
class Tally:
    """What pass 2 did to one replica; `batches_verbatim` were copied byte for byte."""

    batches_in: int = 0
    batches_out: int = 0
    batches_verbatim: int = 0
    records_in: int = 0
    records_out: int = 0


class _RawRecord(NamedTuple):
    """A record inside its decompressed payload: where it starts and ends, its deltas, and where they end."""

    start: int
    end: int
    attributes: int
    timestamp_delta: int
    offset_delta: int
    after_timestamp: int


def rewrite_batch(
    batch: memoryview, header: BatchHeader, decision: Decision, *, ends_group: bool, tally: Tally
) -> bytes | memoryview | None:
    """Return the rewritten batch: the same view, new bytes, or None if it is removed.

    :param ends_group: it is the last batch of the segments that are merged.
    :raises CorruptData: the batch does not parse.
    """
    tally.batches_in += 1
    tally.records_in += header.count
    outcome = _outcome(batch, header, decision, ends_group)
    if outcome is None:
        return None
    tally.batches_out += 1
    tally.records_out += outcome.records
    if outcome.data is batch:
        tally.batches_verbatim += 1
    return outcome.data


def end_placeholder(header: BatchHeader, outcome: bytes | memoryview) -> bytes | None:
    """Return the placeholder that has to follow a group's rewritten last batch; None if none is needed (rule 4)."""
    last = parse_header(outcome).last_offset
    if last == header.last_offset:
        return None
    return placeholder(header._replace(base_offset=last + 1, last_offset_delta=header.last_offset - last - 1))


class _Outcome(NamedTuple):
    """A rewritten batch, and how many records it has."""

    data: bytes | memoryview
    records: int


def _outcome(batch: memoryview, header: BatchHeader, decision: Decision, ends_group: bool) -> _Outcome | None:
    last_offset = header.base_offset + header.last_offset_delta
    if header.base_offset < decision.range_start or last_offset >= decision.range_end:
        return _Outcome(batch, header.count)
    if header.count == 0:
        return _without_records(batch, header, last_offset, decision, ends_group)
    survivors = decision.survivors.between(header.base_offset, last_offset)
    if not survivors:
        return _without_records(batch, header, last_offset, decision, ends_group)
    is_unstamped = header.magic >= OLDEST_WITH_HORIZON and not header.attributes & HORIZON
    stamp = is_unstamped and bool(decision.stamped.between(header.base_offset, last_offset))
    is_dense = header.count == header.last_offset_delta + 1
    if is_dense and len(survivors) == header.count and not stamp:
        return _Outcome(batch, header.count)
    if header.magic < OLDEST_WITH_HORIZON:
        data, count = filtered(batch, header, survivors)
        if count in (0, header.count):
            whole = _Outcome(batch, header.count)
            return whole if count else _without_records(batch, header, last_offset, decision, ends_group)
        return _Outcome(data, count)
    deltas = {o - header.base_offset for o in survivors}
    return _filtered(batch, header, last_offset, deltas, decision, ends_group, stamp)


def _without_records(
    batch: memoryview, header: BatchHeader, last_offset: int, decision: Decision, ends_group: bool
) -> _Outcome | None:
    if last_offset in decision.kept_batches:
        return _Outcome(batch if header.count == 0 else empty_batch(header), 0)
    return _Outcome(placeholder(header), 0) if ends_group else None


def _filtered(
    batch: memoryview,
    header: BatchHeader,
    last_offset: int,
    deltas: Collection[int],
    decision: Decision,
    ends_group: bool,
    stamp: bool,
) -> _Outcome | None:
    codec = header.attributes & _CODEC_MASK
    packed = batch[HEADER_SIZE:]
    payload = memoryview(decompression_stream.whole(codec, packed) if codec else packed)
    try:
        records = [r for r in _walk(payload, header) if r.offset_delta in deltas]
    except OddOffsets:
        return _Outcome(batch, header.count)
    if not records:
        return _without_records(batch, header, last_offset, decision, ends_group)
    if len(records) == header.count and not stamp:
        return _Outcome(batch, header.count)
    base_timestamp = decision.horizon_ms if stamp else header.base_timestamp
    shift = header.base_timestamp - base_timestamp
    body = bytearray()
    for record in records:
        if shift:
            _append_shifted(body, payload, record, shift)
        else:
            body += payload[record.start : record.end]
    max_timestamp = header.max_timestamp
    if not header.attributes & _LOG_APPEND_TIME:
        max_timestamp = max(wrapped(header.base_timestamp + r.timestamp_delta) for r in records)
    attributes = header.attributes | (HORIZON if stamp else 0)
    content = compression.compress(codec, bytes(body)) if codec else bytes(body)
    data = _assemble(header, attributes, base_timestamp, max_timestamp, len(records), content)
    return _Outcome(data, len(records))


def empty_batch(header: BatchHeader) -> bytes:
    """Return the batch without its records: ids, sequence, offsets and flags, to rebuild its producer's state."""
    keep = header.attributes & ~(_CODEC_MASK | HORIZON)
    return _assemble(header, keep, header.max_timestamp, header.max_timestamp, 0, b"")


def placeholder(header: BatchHeader) -> bytes:
    """Return an empty batch with only the offsets and the timestamp of `header`."""
    bare = header._replace(producer_id=-1, producer_epoch=-1, base_sequence=-1)
    return _assemble(bare, header.attributes & _LOG_APPEND_TIME, header.max_timestamp, header.max_timestamp, 0, b"")


def _assemble(
    header: BatchHeader, attributes: int, base_timestamp: int, max_timestamp: int, count: int, content: bytes
) -> bytes:
    out = bytearray(HEADER_SIZE + len(content))
    HEADER.pack_into(
        out,
        0,
        header.base_offset,
        len(out) - LOG_OVERHEAD,
        header.partition_leader_epoch,
        _MAGIC,
        0,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    out[HEADER_SIZE:] = content
    pack_into(">I", out, CRC_AT, crc32c(memoryview(out)[_CRC_START:]))
    return bytes(out)


def _walk(payload: memoryview, header: BatchHeader) -> list[_RawRecord]:
    """Return the positions of `header.count` records.

    Raises OddOffsets, and CorruptData if they do not fill the payload.
    """
    records: list[_RawRecord] = []
    position, before = 0, -1
    try:
        for _ in range(header.count):
            start = position
            length, position = read_varint(payload, position)
            end = position + length
            attributes = payload[position]
            timestamp_delta, after_timestamp = read_varint(payload, position + 1)
            offset_delta, after = read_varint(payload, after_timestamp)
            if not after <= end <= len(payload):
                raise IndexError
            if not before < offset_delta <= header.last_offset_delta:
                raise OddOffsets
            before = offset_delta
            records.append(_RawRecord(start, end, attributes, timestamp_delta, offset_delta, after_timestamp))
            position = end
    except IndexError:
        position = -1
    if position != len(payload):
        raise CorruptData(f"batch at offset {header.base_offset}: its {header.count} records do not fill it")
    return records


def _append_shifted(body: bytearray, payload: memoryview, record: _RawRecord, shift: int) -> None:
    """Append a record with another timestamp delta; everything after the delta is copied."""
    inner = bytearray([record.attributes])
    inner += write_varint(record.timestamp_delta + shift)
    inner += payload[record.after_timestamp : record.end]
    body += write_varint(len(inner)) + inner
