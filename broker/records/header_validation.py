"""What a leader checks in a batch before it appends it, from the header alone, and what it stamps into it.

`record_validation.py` looks at the records of a client's batch then.
"""

import struct
from dataclasses import dataclass

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.records import compression
from logyard.broker.records.crc import crc32, crc32c
from logyard.broker.records.header import (
    ATTRIBUTES_AT,
    CONTROL_BIT,
    CRC_AT,
    HEADER_SIZE,
    KNOWN_BITS,
    LEADER_EPOCH_AT,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    BatchHeader,
    is_one_batch,
    sent_headers,
)
from logyard.broker.records.pauses import MESSAGES, rest

LONG_MAX = 2**63 - 1
# The smallest record: its length, attributes, both deltas, a null key, a null value and no headers, a byte each.
RECORD_SIZE_MIN = 7

_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the topic's config demands of a batch; times in ms, sizes in bytes.

    `validate_records`: offsets without gaps, which Kafka does not ask of uncompressed records; `keys_wanted`: each
    must have a key; `recoding`: how they are to be compressed.
    """

    max_message_bytes: int = 1_048_588
    timestamp_before_max_ms: int = LONG_MAX
    timestamp_after_max_ms: int = LONG_MAX
    log_append_time: bool = False
    validate_records: bool = False
    recoding: compression.Recoding | None = None
    keys_wanted: bool = False


def validate_client_batch(
    buf: memoryview,
    pos: int,
    header: BatchHeader,
    bounds: Bounds,
    *,
    from_client: bool = True,
    check_crc: bool = True,
) -> None:
    """Refuse a v2 batch that must not be appended, from its header; in the order in which Kafka checks.

    `from_client` False is for what the broker itself appends (coordinators): control batches are then allowed.
    Raises ApiError: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, UNKNOWN_SERVER_ERROR (a codec that does not
    exist), UNSUPPORTED_FOR_MESSAGE_FORMAT (a magic below 2: see `legacy.upconvert`).
    """
    if header.magic != 2:
        raise ApiError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"magic {header.magic} must be converted first")
    if pos + header.length > len(buf):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a batch of {header.length} bytes has only {len(buf) - pos}")
    if from_client and header.base_offset != 0:
        raise ApiError(ErrorCode.INVALID_RECORD, f"base offset {header.base_offset}, but producers send 0")
    if header.length > bounds.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {header.length} bytes, max.message.bytes is {bounds.max_message_bytes}",
        )
    if check_crc:
        verify_crc(buf, pos, header)
    if not compression.is_known(header.compression):
        # As Kafka has it, which fails over such a number.
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"compression type {header.compression} does not exist")
    _check_count(header)
    _check_flags(header, from_client)


def _check_count(header: BatchHeader) -> None:
    count = header.count
    if count < 1 or header.last_offset_delta != count - 1:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"{count} records, but the last offset delta is {header.last_offset_delta}",
        )
    if header.compression == compression.NONE and header.length - HEADER_SIZE < RECORD_SIZE_MIN * count:
        raise ApiError(ErrorCode.INVALID_RECORD, f"{count} records do not fit {header.length} bytes")


def _check_flags(header: BatchHeader, from_client: bool) -> None:
    attributes = header.attributes
    if from_client and attributes & CONTROL_BIT:
        raise ApiError(ErrorCode.INVALID_RECORD, "clients must not write control batches")
    # Without a producer id nothing else about the producer is looked at: clients leave there what they like.
    if from_client and header.producer_id >= 0 and header.base_sequence < 0:
        raise ApiError(
            ErrorCode.INVALID_RECORD, f"producer {header.producer_id} has base sequence {header.base_sequence}"
        )


def check_produce_version(buf: memoryview, version: int) -> memoryview:
    """Check what depends on the Produce version: v3+ has one v2 batch, and nothing else; zstd needs v7 (KIP-110).

    Returns the whole batches without what is cut short behind them: nothing, below v3, where there is none.
    Raises ApiError: INVALID_RECORD, UNSUPPORTED_COMPRESSION_TYPE, CORRUPT_MESSAGE for a header that makes no sense.
    """
    if version >= 7 and is_one_batch(buf):
        return buf  # as nearly all are: nothing below can refuse it
    end = 0
    first: BatchHeader | None = None
    try:
        for number, (pos, header) in enumerate(sent_headers(buf), start=1):
            if number % MESSAGES == 0:
                rest()
            if first is not None and first.magic == 2:
                raise ApiError(ErrorCode.INVALID_RECORD, f"Produce v{version} needs exactly one batch per partition")
            if version >= 3 and header.magic != 2:
                raise ApiError(ErrorCode.INVALID_RECORD, f"Produce v{version} needs magic 2, not {header.magic}")
            if 3 <= version < 7 and header.compression == compression.ZSTD:
                raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Produce v{version} does not know zstd")
            first, end = header, pos + header.length
    except CorruptData as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if version >= 3 and first is None:
        raise ApiError(ErrorCode.INVALID_RECORD, f"Produce v{version} needs a whole batch")
    return buf[:end]


def crc_matches(buf: memoryview, pos: int, header: BatchHeader) -> bool:
    """Whether the checksum in the header is that of the bytes after it (of any magic); the batch must be whole."""
    if header.magic == 2:
        return crc32c(buf[pos + ATTRIBUTES_AT : pos + header.length]) == header.crc
    return crc32(buf[pos + MAGIC_AT : pos + header.length]) == header.crc


def verify_crc(buf: memoryview, pos: int, header: BatchHeader) -> bool:
    """Return True, or raise ApiError(CORRUPT_MESSAGE) where the checksum is wrong or the batch is cut short."""
    if pos + header.length > len(buf) or not crc_matches(buf, pos, header):
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            f"batch at {pos} with base offset {header.base_offset} and {header.length} bytes: the checksum is wrong",
        )
    return True


def stamp(buf: memoryview | bytearray, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into a v2 batch; the checksum does not cover them."""
    _INT64.pack_into(buf, pos, base_offset)
    _INT32.pack_into(buf, pos + LEADER_EPOCH_AT, leader_epoch)


def stamp_log_append_time(buf: memoryview, pos: int, header: BatchHeader, now_ms: int) -> None:
    """Turn a v2 batch into one with the leader's time: flag, max timestamp, checksum (31 µs/MB)."""
    _INT16.pack_into(buf, pos + ATTRIBUTES_AT, header.attributes & KNOWN_BITS | LOG_APPEND_TIME_BIT)
    _INT64.pack_into(buf, pos + MAX_TIMESTAMP_AT, now_ms)
    _UINT32.pack_into(buf, pos + CRC_AT, crc32c(memoryview(buf)[pos + ATTRIBUTES_AT : pos + header.length]))
