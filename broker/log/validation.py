"""What a leader does with a client's batches before it appends them: all their records are looked at, as in Kafka.

What is refused, corrected and left alone is listed in docs/records.md. Message sets of old clients become v2 batches,
and compression.type is seen to. How long that takes is the client's choice, as bytes that come compressed may be of any
size: only a little of it is done on the event loop (`is_little`).
"""

import struct
from collections.abc import Callable
from functools import partial

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.records import compression
from logyard.broker.records.batch import BatchHeader, Bounds, iter_headers, parse_header, validate_client_batch
from logyard.broker.records.crc import crc32c
from logyard.broker.records.header import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_SIZE,
    KNOWN_BITS,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
)
from logyard.broker.records.legacy import upconvert
from logyard.broker.records.pauses import rest
from logyard.broker.records.recompression import is_recoded, recoded
from logyard.broker.records.record_validation import LITTLE_BYTES, Inspected, inspect
from logyard.broker.records.record_validation import is_little as is_little_batch

# Old messages are read one by one in Python: 150 of them.
LITTLE_OLD_BYTES = 4 * 1024

_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")
_UINT32 = struct.Struct(">I")


Opener = tuple[Callable[[memoryview], memoryview], Bounds]
"""What to do in a thread with a copy of batches, returning what is to be appended; and the bounds that it goes by."""


def opener(
    buf: memoryview, bounds: Bounds, now_ms: int, *, always: bool = False
) -> Callable[[memoryview], memoryview] | None:
    """What to do with these batches in a thread before they are appended; None where that would not take long.

    `always` where they are one of many that would together.
    It takes a copy of them and returns what is to be appended instead; raises ApiError as `opened` does.
    """
    if not always and is_little(buf, bounds):
        return None
    return partial(opened, bounds=bounds, now_ms=now_ms, piecewise=True)


def is_little(buf: memoryview, bounds: Bounds) -> bool:
    """Whether `opened` will not take long over these batches; also where it would refuse them at once."""
    size = len(buf)
    if size < HEADER_SIZE or buf[MAGIC_AT] != 2:
        return size <= LITTLE_OLD_BYTES and not any(header.compression for _, header in _whole(buf))
    try:
        header = parse_header(buf)
    except CorruptData:
        return True
    if (
        header.length > bounds.max_message_bytes
        or header.length != size
        or not compression.is_known(header.compression)
    ):
        return True  # refused at once
    if size > LITTLE_BYTES and is_recoded(header, bounds.recoding):
        return False
    return is_little_batch(buf, header)


def _whole(buf: memoryview) -> list[tuple[int, BatchHeader]]:
    try:
        return list(iter_headers(buf))
    except CorruptData:
        return []


def opened(
    buf: memoryview, bounds: Bounds, now_ms: int, *, from_client: bool = True, piecewise: bool = False
) -> memoryview:
    """Check batches and their records, correct what Kafka corrects; returns what is to be appended.

    That is `buf` itself, corrected where it lies, unless batches are made anew. `from_client` False is for what the
    broker itself appends; `piecewise` for what is not little. Raises ApiError: what `upconvert`,
    `validate_client_batch`, `inspect` and `recoded` raise.
    """
    if len(buf) > MAGIC_AT and buf[MAGIC_AT] < 2:
        return memoryview(upconvert(buf, bounds, now_ms))
    ready: list[memoryview | bytearray] = []
    pos, end = 0, len(buf)
    while pos < end:
        try:
            header = parse_header(buf, pos)
        except CorruptData as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
        validate_client_batch(buf, pos, header, bounds, from_client=from_client)
        batch = buf[pos : pos + header.length]
        ready.append(_ready(batch, header, bounds, inspect(batch, header, bounds, now_ms, piecewise=piecewise)))
        pos += header.length
    if piecewise:
        rest()
    if all(isinstance(batch, memoryview) for batch in ready):
        return buf
    return memoryview(b"".join(ready)) if len(ready) > 1 else memoryview(ready[0])


def _ready(batch: memoryview, header: BatchHeader, bounds: Bounds, found: Inspected) -> memoryview | bytearray:
    if bounds.recoding is not None and is_recoded(header, bounds.recoding):
        return recoded(batch, header, bounds.recoding, found, bounds.max_message_bytes)
    if not found.is_dense and header.compression != compression.NONE:
        # Kafka means to make the batch anew then, and fails over it.
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "offsets of compressed records must count from 0 without gaps")
    if not found.is_dense and bounds.validate_records:
        raise ApiError(ErrorCode.INVALID_RECORD, "the offsets of the records must count from 0 without gaps")
    if bounds.log_append_time:
        return batch  # the log stamps it
    if found.max_timestamp != header.max_timestamp or header.attributes & LOG_APPEND_TIME_BIT:
        _INT16.pack_into(batch, ATTRIBUTES_AT, header.attributes & KNOWN_BITS & ~LOG_APPEND_TIME_BIT)
        _INT64.pack_into(batch, MAX_TIMESTAMP_AT, found.max_timestamp)
        _UINT32.pack_into(batch, CRC_AT, crc32c(batch[ATTRIBUTES_AT:]))
    return batch
