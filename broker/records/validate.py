"""What a leader checks in a batch before it appends it, from the header alone, and what it stamps into it.

Records stay closed (architecture decision 3): a batch whose header is consistent and whose CRC is right is
stored as it came. `decode.require_keys` and `decode.validate_records` open it where a topic asks for that.
"""

import struct
from dataclasses import dataclass

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.records import compression
from logyard.broker.records.crc import crc32, crc32c
from logyard.broker.records.header import (
    ATTRIBUTES_AT,
    COMPRESSION_BITS,
    CONTROL_BIT,
    CRC_AT,
    HEADER_SIZE,
    LEADER_EPOCH_AT,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    NO_TIMESTAMP,
    BatchHeader,
    is_one_batch,
    iter_headers,
)

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

    `validate_records`: its records are opened and checked; `keys_wanted`: each must have a key; `recoding`: how they
    are to be compressed.
    """

    max_message_bytes: int = 1_048_588
    timestamp_before_max_ms: int = LONG_MAX
    timestamp_after_max_ms: int = LONG_MAX
    log_append_time: bool = False
    validate_records: bool = False
    recoding: compression.Recoding | None = None
    keys_wanted: bool = False

    @property
    def looks_into_records(self) -> bool:
        """Whether every batch is opened."""
        return self.keys_wanted or self.validate_records

    @property
    def opens(self) -> bool:
        """Whether batches may have to be opened before they are appended."""
        return self.recoding is not None or self.keys_wanted or self.validate_records


def validate_client_batch(
    buf: memoryview,
    pos: int,
    header: BatchHeader,
    *,
    now_ms: int,
    bounds: Bounds,
    from_client: bool = True,
    check_crc: bool = True,
) -> None:
    """Refuse a v2 batch that must not be appended; in the order in which Kafka checks.

    `from_client` False is for what the broker itself appends (coordinators): control batches are then allowed.
    Raises ApiError: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE,
    INVALID_TIMESTAMP, UNSUPPORTED_FOR_MESSAGE_FORMAT (a magic below 2: see `legacy.upconvert`).
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
    _check_count(header)
    _check_flags(header, from_client)
    _check_timestamps(header, now_ms, bounds)


def _check_count(header: BatchHeader) -> None:
    count = header.count
    if count < 1 or header.last_offset_delta != count - 1:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"{count} records, but the last offset delta is {header.last_offset_delta}",
        )
    codec = header.attributes & COMPRESSION_BITS
    if codec == compression.NONE:
        least = RECORD_SIZE_MIN * count
    else:
        compression.name(codec)
        least = 1
    if header.length - HEADER_SIZE < least:
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


def _check_timestamps(header: BatchHeader, now_ms: int, bounds: Bounds) -> None:
    if header.attributes & LOG_APPEND_TIME_BIT:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, "producers must not set the timestamp type LogAppendTime")
    if bounds.log_append_time:
        return
    earliest, latest = header.base_timestamp, header.max_timestamp
    if latest != NO_TIMESTAMP and latest - now_ms > bounds.timestamp_after_max_ms:
        raise ApiError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {latest} is more than {bounds.timestamp_after_max_ms} ms after {now_ms}",
        )
    if earliest != NO_TIMESTAMP and now_ms - earliest > bounds.timestamp_before_max_ms:
        raise ApiError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {earliest} is more than {bounds.timestamp_before_max_ms} ms before {now_ms}",
        )


def check_produce_version(buf: memoryview, version: int) -> None:
    """Check what depends on the Produce version: v3+ has one v2 batch, and nothing else; zstd needs v7 (KIP-110).

    Raises ApiError: INVALID_RECORD, UNSUPPORTED_COMPRESSION_TYPE, CORRUPT_MESSAGE for a header that makes no sense.
    """
    if version >= 7 and is_one_batch(buf):
        return  # as nearly all are: nothing below can refuse it
    try:
        walked = list(iter_headers(buf))
    except CorruptData as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    for _, header in walked:
        if version >= 3 and header.magic != 2:
            raise ApiError(ErrorCode.INVALID_RECORD, f"Produce v{version} needs magic 2, not {header.magic}")
        if version < 7 and header.compression == compression.ZSTD:
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Produce v{version} does not know zstd")
    if version >= 3 and (len(walked) != 1 or walked[0][1].length != len(buf)):
        raise ApiError(ErrorCode.INVALID_RECORD, f"Produce v{version} needs exactly one batch per partition")


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
    _INT16.pack_into(buf, pos + ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_BIT)
    _INT64.pack_into(buf, pos + MAX_TIMESTAMP_AT, now_ms)
    _UINT32.pack_into(buf, pos + CRC_AT, crc32c(memoryview(buf)[pos + ATTRIBUTES_AT : pos + header.length]))
