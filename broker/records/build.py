"""Builds v2 batches; the caller may set all fields of the header."""

import struct
from collections.abc import Sequence

from logyard.broker.records import compression as codecs
from logyard.broker.records.crc import crc32c
from logyard.broker.records.decode import Record
from logyard.broker.records.header import (
    ATTRIBUTES_AT,
    CONTROL_BIT,
    CRC_AT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
)
from logyard.broker.records.varint import write_varint

_UINT32 = struct.Struct(">I")
_CONTROL_KEY = struct.Struct(">hh")
_END_MARKER = struct.Struct(">hi")
_NULL = write_varint(-1)
_NO_HEADERS = b"\0"


def build(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    compression: int = codecs.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = -1,
    control: bool = False,
    transactional: bool = False,
    log_append_time_ms: int | None = None,
    last_offset: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """Build a v2 batch of records, which are in ascending order of offset.

    `base_offset` is by default that of the first record. Offsets may have gaps, and `last_offset` may be after the last
    record (compaction). With `log_append_time_ms` all records have that time. With `delete_horizon_ms` the base
    timestamp is the delete horizon, as the cleaner writes it.
    """
    base = base_offset if base_offset is not None else records[0].offset if records else 0
    last = last_offset if last_offset is not None else records[-1].offset if records else base
    first_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    base_timestamp = first_timestamp if delete_horizon_ms is None else delete_horizon_ms
    max_timestamp = max((r.timestamp for r in records), default=NO_TIMESTAMP)
    attributes = compression
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = log_append_time_ms
    attributes |= CONTROL_BIT if control else 0
    attributes |= DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0
    attributes |= TRANSACTIONAL_BIT if transactional else 0
    body = bytearray()
    for record in records:
        append_record(body, record, base, base_timestamp)
    payload = codecs.compress(compression, body) if compression and body else body
    fields = (attributes, last - base, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence)
    return seal(payload, base, leader_epoch, fields, len(records))


def seal(
    payload: bytes | bytearray,
    base_offset: int,
    leader_epoch: int,
    fields: tuple[int, int, int, int, int, int, int],
    count: int,
) -> bytearray:
    """Put a header with its checksum before the compressed records.

    `fields` are the header's fields from the attributes to the base sequence.
    """
    length = HEADER_SIZE - LOG_OVERHEAD + len(payload)
    out = bytearray(HEADER.pack(base_offset, length, leader_epoch, 2, 0, *fields, count))
    out += payload
    _UINT32.pack_into(out, CRC_AT, crc32c(memoryview(out)[ATTRIBUTES_AT:]))
    return out


def append_record(body: bytearray, record: Record, base_offset: int, base_timestamp: int) -> None:
    """Append a record to the body of a v2 batch."""
    parts = [
        b"\0",
        write_varint(record.timestamp - base_timestamp),
        write_varint(record.offset - base_offset),
        *_sized(record.key),
        *_sized(record.value),
    ]
    if record.headers:
        parts.append(write_varint(len(record.headers)))
        for key, value in record.headers:
            parts += _sized(key.encode(errors="surrogateescape"))
            parts += _sized(value)
    else:
        parts.append(_NO_HEADERS)
    content = b"".join(parts)
    body += write_varint(len(content))
    body += content


def _sized(value: bytes | None) -> tuple[bytes, ...]:
    return (_NULL,) if value is None else (write_varint(len(value)), value)


def build_control(
    kind: int,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """Build the batch with the marker that ends a transaction; `kind` is `decode.ABORT` or `decode.COMMIT`."""
    marker = Record(base_offset, timestamp, _CONTROL_KEY.pack(0, kind), _END_MARKER.pack(0, coordinator_epoch))
    return build(
        [marker],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        control=True,
        transactional=True,
    )
