"""Validation of a client's batches before a leader appends them: every record is checked, as in Kafka.

docs/records.md lists what is refused, corrected and left unchanged. Message sets of old clients become v2 batches, and
batches are recompressed as compression.type demands. Compressed bytes can expand to any size, so the client decides
how long this takes: only short validations run on the event loop (`is_little`).
"""

import struct
from collections.abc import Callable

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.records import compiled_look, compression
from logyard.broker.records.batch import BatchHeader, Bounds, iter_headers, parse_header, validate_client_batch
from logyard.broker.records.crc import crc32c
from logyard.broker.records.header import (
    ATTRIBUTES_AT,
    COMPRESSION_BITS,
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
from logyard.broker.records.record_validation import LITTLE_BYTES, WINDOW_BYTES, Inspected, inspect, inspect_at_once
from logyard.broker.records.record_validation import is_little as is_little_batch

# Old messages are read one by one in Python: this is about 150 of them.
LITTLE_OLD_BYTES = 4 * 1024

_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")
_UINT32 = struct.Struct(">I")


ValidationWork = tuple[Callable[[memoryview], memoryview], Bounds]
"""A function for a thread that takes a copy of the batches and returns those to append, and the bounds it checks.

It raises ApiError as `validate` does.
"""


def is_usual(buf: memoryview, bounds: Bounds) -> bool:
    """Whether this is the usual batch: what is wrong with another one that looks so is found at once."""
    return (
        HEADER_SIZE <= len(buf) <= WINDOW_BYTES
        and bounds.recoding is None
        and not buf[ATTRIBUTES_AT + 1] & COMPRESSION_BITS
        and buf[MAGIC_AT] == 2
    )


def is_little(buf: memoryview, bounds: Bounds) -> bool:
    """Whether `validate` is short for these batches, or refuses them at once."""
    size = len(buf)
    if size < HEADER_SIZE or buf[MAGIC_AT] != 2:
        return size <= LITTLE_OLD_BYTES and not any(header.compression for _, header in _whole(buf))
    if is_usual(buf, bounds):
        return True
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


def validate_at_once(buf: memoryview, bounds: Bounds, now_ms: Callable[[], int]) -> bool:
    """Do what `validate` does with one large or compressed batch, if the compiled loop accepts it, and that is short.

    False: nothing was done; what is wrong with it, if anything is, others find. Times (ms) are asked of `now_ms`.
    """
    if bounds.recoding is not None or not compiled_look.is_loaded():
        return False
    try:
        header = parse_header(buf)
        if header.length != len(buf) or header.magic != 2:
            return False
        validate_client_batch(buf, 0, header, bounds)
        found = inspect_at_once(buf, header, bounds, now_ms() if bounds.has_times else 0)
        if found is None:
            return False
        _ready(buf, header, bounds, found)
    except (ApiError, CorruptData):
        return False
    return True


def _whole(buf: memoryview) -> list[tuple[int, BatchHeader]]:
    try:
        return list(iter_headers(buf))
    except CorruptData:
        return []


def validate(
    buf: memoryview, bounds: Bounds, now_ms: int, *, from_client: bool = True, piecewise: bool = False
) -> memoryview:
    """Check batches and their records, correct what Kafka corrects, and return the batches to append.

    The result is `buf` itself, corrected in place, unless a batch had to be converted or recompressed. `from_client` is
    False for what the broker itself appends; `piecewise` is for long validations. Raises ApiError as `upconvert`,
    `validate_client_batch`, `inspect` and `recoded` do.
    """
    return validate_with_header(buf, bounds, now_ms, from_client=from_client, piecewise=piecewise)[0]


def validate_with_header(
    buf: memoryview, bounds: Bounds, now_ms: int, *, from_client: bool = True, piecewise: bool = False
) -> tuple[memoryview, BatchHeader | None]:
    """Do what `validate` does; also return the header of what it returns, if that is one batch that is as it was sent.

    Hot path: who appends the usual batch need not parse its header again.
    """
    if len(buf) > MAGIC_AT and buf[MAGIC_AT] < 2:
        return memoryview(upconvert(buf, bounds, now_ms)), None
    ready: list[memoryview | bytearray] = []
    pos, end = 0, len(buf)
    while pos < end:
        try:
            header = parse_header(buf, pos)
        except CorruptData as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
        validate_client_batch(buf, pos, header, bounds, from_client=from_client)
        if header.length == end and not piecewise:
            # The usual request has one batch.
            only, as_sent = _ready(buf, header, bounds, inspect(buf, header, bounds, now_ms))
            return (only if isinstance(only, memoryview) else memoryview(only)), (header if as_sent else None)
        batch = buf[pos : pos + header.length]
        ready.append(_ready(batch, header, bounds, inspect(batch, header, bounds, now_ms, piecewise=piecewise))[0])
        pos += header.length
    if piecewise:
        rest()
    if all(isinstance(batch, memoryview) for batch in ready):
        return buf, None
    return memoryview(b"".join(ready)) if len(ready) > 1 else memoryview(ready[0]), None


def _ready(
    batch: memoryview, header: BatchHeader, bounds: Bounds, found: Inspected
) -> tuple[memoryview | bytearray, bool]:
    """Return the batch to append, and whether nothing in it was changed."""
    if bounds.recoding is not None and is_recoded(header, bounds.recoding):
        return recoded(batch, header, bounds.recoding, found, bounds.max_message_bytes), False
    if not found.is_dense and header.compression != compression.NONE:
        # Kafka tries to rebuild such a batch, and fails with this error.
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "offsets of compressed records must count from 0 without gaps")
    if not found.is_dense and bounds.validate_records:
        raise ApiError(ErrorCode.INVALID_RECORD, "the offsets of the records must count from 0 without gaps")
    if bounds.log_append_time:
        return batch, True  # the log stamps it
    if found.max_timestamp != header.max_timestamp or header.attributes & LOG_APPEND_TIME_BIT:
        _INT16.pack_into(batch, ATTRIBUTES_AT, header.attributes & KNOWN_BITS & ~LOG_APPEND_TIME_BIT)
        _INT64.pack_into(batch, MAX_TIMESTAMP_AT, found.max_timestamp)
        _UINT32.pack_into(batch, CRC_AT, crc32c(batch[ATTRIBUTES_AT:]))
        return batch, False
    return batch, True
