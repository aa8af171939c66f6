"""Batches opened: their records, for internal topics, compacted topics and tools.

The walk over the records is aiokafka's C code (0.07 µs a record); decompression is ours, because it must be bounded.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.records import compression
from logyard.broker.records.header import (
    ATTRIBUTES_AT,
    COMPRESSION_BITS,
    HEADER_SIZE,
    LENGTH_AT,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    parse_header,
)
from logyard.broker.slim_import import without_front_page

with without_front_page("aiokafka"):
    from aiokafka.errors import CorruptRecordException
    from aiokafka.record._crecords import DefaultRecordBatch

ABORT: Final = 0
COMMIT: Final = 1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_CONTROL_KEY = struct.Struct(">hh")
_END_MARKER = struct.Struct(">hi")


class Record(NamedTuple):
    """One record; `timestamp` is what a consumer sees (the batch's own with LogAppendTime). Attributes are always 0."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    attributes: int = 0


class ControlMarker(NamedTuple):
    """A transaction's end as its marker states it; `type` is ABORT, COMMIT or a later kind."""

    type: int
    coordinator_epoch: int


def records(buf: memoryview | bytes | bytearray, pos: int = 0) -> list[Record]:
    """Open the v2 batch at `pos`; the checksum is not looked at.

    Raises CorruptData where it is cut short, where records do not parse or are not as many as the header says.
    """
    view = memoryview(buf)
    header = parse_header(view, pos)
    if header.magic != 2:
        raise CorruptData(f"batch at {pos}: magic {header.magic} is read by `legacy`")
    if pos + header.length > len(view):
        raise CorruptData(f"batch at {pos}: {len(view) - pos} of its {header.length} bytes are there")
    if header.count <= 0:
        return []
    try:
        found = [
            Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
            for r in DefaultRecordBatch(_uncompressed(view, pos, header))
        ]
    except (CorruptRecordException, ValueError, IndexError, OverflowError) as error:
        raise CorruptData(f"batch at {pos} with base offset {header.base_offset}: {error}") from error
    if len(found) != header.count:
        raise CorruptData(f"batch at {pos}: {len(found)} records, but the header says {header.count}")
    return found


def keys(view: memoryview, header: BatchHeader) -> Iterator[tuple[int, bytes | None, bool]]:
    """Yield offset, key and whether there is a value, of each record of the v2 batch in `view`: what compaction asks.

    Raises CorruptData as `records` does.
    """
    if header.count <= 0:
        return
    found = 0
    try:
        for record in DefaultRecordBatch(_uncompressed(view, 0, header)):
            found += 1
            yield record.offset, record.key, record.value is not None
    except (CorruptRecordException, ValueError, IndexError, OverflowError) as error:
        raise CorruptData(f"batch with base offset {header.base_offset}: {error}") from error
    if found != header.count:
        raise CorruptData(
            f"batch with base offset {header.base_offset}: {found} records, its header says {header.count}"
        )


def _uncompressed(view: memoryview, pos: int, header: BatchHeader) -> bytes | bytearray:
    """The batch alone, its records not compressed."""
    if header.compression == compression.NONE:
        return bytes(view[pos : pos + header.length])
    body = compression.decompress(header.compression, view[pos + HEADER_SIZE : pos + header.length])
    made = bytearray(view[pos : pos + HEADER_SIZE]) + body
    _INT32.pack_into(made, LENGTH_AT, len(made) - LOG_OVERHEAD)
    _INT16.pack_into(made, ATTRIBUTES_AT, header.attributes & ~COMPRESSION_BITS)
    return made


def require_keys(buf: memoryview, pos: int, header: BatchHeader) -> None:
    """Refuse a v2 batch with a record that has no key, as compacted topics must.

    Raises ApiError: INVALID_RECORD, or CORRUPT_MESSAGE where the records do not parse.
    """
    if any(record.key is None for record in _client_records(buf, pos)):
        raise ApiError(ErrorCode.INVALID_RECORD, "a compacted topic takes no record without a key")


def validate_records(buf: memoryview, pos: int, header: BatchHeader) -> None:
    """Check what the header says of the records against them: count, offsets without gaps, the largest timestamp.

    Raises ApiError: INVALID_RECORD, or CORRUPT_MESSAGE where the records do not parse.
    """
    found = _client_records(buf, pos)
    for expected, record in enumerate(found, start=header.base_offset):
        if record.offset != expected:
            raise ApiError(ErrorCode.INVALID_RECORD, f"offset {record.offset} where {expected} must follow")
    latest = max((record.timestamp for record in found), default=NO_TIMESTAMP)
    if header.timestamp_type is TimestampType.CREATE_TIME and latest != header.max_timestamp:
        raise ApiError(ErrorCode.INVALID_RECORD, f"the header says {header.max_timestamp}, the records {latest}")


def _client_records(buf: memoryview, pos: int) -> list[Record]:
    try:
        return records(buf, pos)
    except CorruptData as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def control_type(record: Record) -> int:
    """The kind of a control record (ABORT, COMMIT, later ones); raises CorruptData."""
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise CorruptData(f"the control record at {record.offset} has no type")
    version, kind = _CONTROL_KEY.unpack_from(record.key)
    if version < 0:
        raise CorruptData(f"the control record at {record.offset} has version {version}")
    return int(kind)


def control_marker(record: Record) -> ControlMarker:
    """Read the end-of-transaction marker in a control record; raises CorruptData."""
    kind = control_type(record)
    if record.value is None or len(record.value) < _END_MARKER.size:
        raise CorruptData(f"the control record at {record.offset} has no coordinator epoch")
    _, coordinator_epoch = _END_MARKER.unpack_from(record.value)
    return ControlMarker(kind, coordinator_epoch)
