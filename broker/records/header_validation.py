"""A leader's checks of a batch's header before the append, and the fields that it writes into the header.

`record_validation.py` has the checks of the records (docs/records.md).
"""

import struct
from dataclasses import dataclass, field

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.records import compression
from logyard.broker.records.crc import crc32, crc32c
from logyard.broker.records.header import (
    ATTRIBUTES_AT,
    COMPRESSION_BITS,
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
# The smallest record: length, attributes, both deltas, null key, null value and no headers, a byte each.
RECORD_SIZE_MIN = 7

_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the topic's settings require of a batch; times in ms, sizes in bytes.

    `validate_records`: the offsets must not have gaps, which Kafka does not require of uncompressed records;
    `keys_wanted`: all records must have keys; `recoding`: the codec, None if the producer's is kept. `is_thorough`:
    more than its records' largest time has to be known of any batch.
    """

    max_message_bytes: int = 1_048_588
    timestamp_before_max_ms: int = LONG_MAX
    timestamp_after_max_ms: int = LONG_MAX
    log_append_time: bool = False
    validate_records: bool = False
    recoding: compression.Recoding | None = None
    keys_wanted: bool = False
    is_thorough: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        more = self.keys_wanted or self.validate_records or self.recoding is not None or self.has_times
        object.__setattr__(self, "is_thorough", more)

    @property
    def has_times(self) -> bool:
        """Whether the times of a producer's records have limits."""
        if self.log_append_time:
            return False
        return self.timestamp_before_max_ms < LONG_MAX or self.timestamp_after_max_ms < LONG_MAX


def validate_client_batch(
    buf: memoryview,
    pos: int,
    header: BatchHeader,
    bounds: Bounds,
    *,
    from_client: bool = True,
    check_crc: bool = True,
) -> None:
    """Check the header of a v2 batch, in Kafka's order.

    Pass `from_client` False for what the broker itself appends: then control batches are allowed.
    Raises ApiError: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, UNKNOWN_SERVER_ERROR (there is no such codec),
    UNSUPPORTED_FOR_MESSAGE_FORMAT (a magic below 2: see `legacy.upconvert`).
    """
    length = header.length
    if header.magic != 2:
        raise ApiError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"magic {header.magic} must be converted first")
    if pos + length > len(buf):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a batch of {length} bytes has only {len(buf) - pos}")
    if from_client and header.base_offset != 0:
        raise ApiError(ErrorCode.INVALID_RECORD, f"base offset {header.base_offset}, but producers send 0")
    if length > bounds.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {length} bytes, max.message.bytes is {bounds.max_message_bytes}",
        )
    if check_crc and not crc_matches(buf, pos, header):
        raise _wrong_crc(pos, header)
    codec = header.attributes & COMPRESSION_BITS
    if codec and not compression.is_known(codec):
        # The error that Kafka gives, because it fails on such a number.
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"compression type {codec} does not exist")
    _check_count(header, codec)
    _check_flags(header, from_client)


def _check_count(header: BatchHeader, codec: int) -> None:
    count = header.count
    if count < 1 or header.last_offset_delta != count - 1:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"{count} records, but the last offset delta is {header.last_offset_delta}",
        )
    if codec == compression.NONE and header.length - HEADER_SIZE < RECORD_SIZE_MIN * count:
        raise ApiError(ErrorCode.INVALID_RECORD, f"{count} records do not fit {header.length} bytes")


def _check_flags(header: BatchHeader, from_client: bool) -> None:
    attributes = header.attributes
    if from_client and attributes & CONTROL_BIT:
        raise ApiError(ErrorCode.INVALID_RECORD, "clients must not write control batches")
    # Without a producer id the other fields of the producer are ignored: some clients set them.
    if from_client and header.producer_id >= 0 and header.base_sequence < 0:
        raise ApiError(
            ErrorCode.INVALID_RECORD, f"producer {header.producer_id} has base sequence {header.base_sequence}"
        )


def check_produce_version(buf: memoryview, version: int) -> memoryview:
    """Check what depends on the Produce version: from v3 on there is exactly one v2 batch; zstd needs v7 (KIP-110).

    Returns the whole batches, without an incomplete one at the end; below v3 there may be none.
    Raises ApiError: INVALID_RECORD, UNSUPPORTED_COMPRESSION_TYPE, CORRUPT_MESSAGE (an impossible header).
    """
    if version >= 7 and is_one_batch(buf):
        return buf  # the usual request: nothing below can refuse it
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
    """Whether the checksum of a whole batch, of any magic, is right."""
    if header.magic == 2:
        return crc32c(buf[pos + ATTRIBUTES_AT : pos + header.length]) == header.crc
    return crc32(buf[pos + MAGIC_AT : pos + header.length]) == header.crc


def verify_crc(buf: memoryview, pos: int, header: BatchHeader) -> bool:
    """Return True. Raises ApiError: CORRUPT_MESSAGE (the checksum is wrong, or the batch is incomplete)."""
    if pos + header.length > len(buf) or not crc_matches(buf, pos, header):
        raise _wrong_crc(pos, header)
    return True


def _wrong_crc(pos: int, header: BatchHeader) -> ApiError:
    text = f"batch at {pos} with base offset {header.base_offset} and {header.length} bytes: the checksum is wrong"
    return ApiError(ErrorCode.CORRUPT_MESSAGE, text)


def stamp(buf: memoryview | bytearray, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into a v2 batch; the checksum does not cover them."""
    _INT64.pack_into(buf, pos, base_offset)
    _INT32.pack_into(buf, pos + LEADER_EPOCH_AT, leader_epoch)


def stamp_log_append_time(buf: memoryview, pos: int, header: BatchHeader, now_ms: int) -> None:
    """Give a v2 batch the leader's time: write flag, max timestamp and checksum (31 µs/MB)."""
    _INT16.pack_into(buf, pos + ATTRIBUTES_AT, header.attributes & KNOWN_BITS | LOG_APPEND_TIME_BIT)
    _INT64.pack_into(buf, pos + MAX_TIMESTAMP_AT, now_ms)
    _UINT32.pack_into(buf, pos + CRC_AT, crc32c(memoryview(buf)[pos + ATTRIBUTES_AT : pos + header.length]))
