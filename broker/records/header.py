"""The headers of record batches, and how to go from batch to batch; the records are not decoded (`decode.py`).

A v2 batch is 61 bytes of header, then records, as in the protocol guide; the constants NAME_AT are positions of its
fields. Messages of the old formats (magic 0 and 1) get such a header too: see `parse_header`.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from logyard.broker.errors import CorruptData

HEADER_SIZE: Final = 61
# Offset and length, which the length itself does not count, in all formats.
LOG_OVERHEAD: Final = 12

LENGTH_AT: Final = 8
LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
BASE_TIMESTAMP_AT: Final = 27
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_AT: Final = 43
COUNT_AT: Final = 57

COMPRESSION_BITS: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
# All bits that have a meaning; if attributes are rewritten, the others are cleared, as in Kafka.
KNOWN_BITS: Final = 0x7F

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
SEQUENCE_MAX: Final = 2**31 - 1

HEADER = struct.Struct(">qiibIhiqqqhii")
_LEGACY = struct.Struct(">qiIbb")
_PRODUCER = struct.Struct(">qhi")
_INT64 = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
# The bytes of a message of magic 0 without key, value, offset and length.
LEGACY_OVERHEAD = 14
# The smallest old message: offset, length, crc, magic, attributes, null key, null value (magic 1: a timestamp more).
_LEGACY_SIZE_MIN = 26


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The header of a batch; `length` is that of the whole batch in bytes, with offset and length."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """The codec's number, an index of `compression.NAMES`."""
        return self.attributes & COMPRESSION_BITS

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, -1 if there is none. Sequences wrap from 2**31 - 1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX

    @property
    def delete_horizon(self) -> int | None:
        """The time (ms) after which its tombstones and markers may be removed; None before its first cleaning."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None


_new = tuple.__new__


def parse_header(buf: memoryview | bytes | bytearray, pos: int = 0) -> BatchHeader:
    """Decode the header at `pos`; the buffer need not have the records. Raises CorruptData.

    A message of magic 0 or 1 has the offset of its last record, and no count. Its base_offset is that offset,
    last_offset_delta 0, count 1 (-1 if it is compressed), both timestamps its own (-1 for magic 0), attributes the
    codec (with magic 1 the timestamp type too). Leader epoch, producer id, producer epoch and sequence are -1.
    """
    present = len(buf) - pos
    if present < MAGIC_AT + 2:
        raise CorruptData(f"batch at {pos}: {present} bytes are too few for a header")
    magic = buf[pos + MAGIC_AT]
    if magic != 2:
        return _legacy_header(buf, pos, magic)
    if present < HEADER_SIZE:
        raise CorruptData(f"batch at {pos}: {present} bytes are too few for a header of {HEADER_SIZE}")
    fields = HEADER.unpack_from(buf, pos)
    length = fields[1]
    if length < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptData(f"batch at {pos}: a length of {length} is less than a header's")
    return _new(BatchHeader, (fields[0], length + LOG_OVERHEAD, *fields[2:]))  # hot path: _make is Python


def _legacy_header(buf: memoryview | bytes | bytearray, pos: int, magic: int) -> BatchHeader:
    if magic not in (0, 1):
        raise CorruptData(f"batch at {pos}: magic {magic} is not known")
    offset, length, crc, _, attributes = _LEGACY.unpack_from(buf, pos)
    if length + LOG_OVERHEAD < _LEGACY_SIZE_MIN + 8 * magic:
        raise CorruptData(f"message at {pos}: a length of {length} is less than an empty message's")
    timestamp = NO_TIMESTAMP
    attributes &= COMPRESSION_BITS | (LOG_APPEND_TIME_BIT if magic == 1 else 0)
    if magic == 1:
        if len(buf) - pos < _LEGACY.size + _INT64.size:
            raise CorruptData(f"message at {pos}: {len(buf) - pos} bytes are too few for a header")
        (timestamp,) = _INT64.unpack_from(buf, pos + _LEGACY.size)
    count = -1 if attributes & COMPRESSION_BITS else 1
    size = length + LOG_OVERHEAD
    return BatchHeader(offset, size, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, count)


def is_one_batch(buf: memoryview | bytes | bytearray) -> bool:
    """Whether the buffer is exactly one v2 batch, by magic and length."""
    if len(buf) < HEADER_SIZE or buf[MAGIC_AT] != 2:
        return False
    (length,) = _LENGTH.unpack_from(buf, LENGTH_AT)
    return bool(length + LOG_OVERHEAD == len(buf))


def is_one_plain_batch(buf: memoryview | bytes | bytearray) -> bool:
    """Whether the buffer is exactly one v2 batch that is of no transaction, by magic, length and flag."""
    return is_one_batch(buf) and not buf[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT


def is_transactional(buf: memoryview | bytes | bytearray) -> bool:
    """Whether the first batch in the buffer is a v2 batch of a transaction, by magic and flag."""
    return len(buf) >= HEADER_SIZE and buf[MAGIC_AT] == 2 and bool(buf[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT)


def producer_of(buf: memoryview | bytes | bytearray) -> tuple[int, int, int]:
    """Return the producer's id, epoch and base sequence of the v2 batch that begins the buffer."""
    producer_id, epoch, sequence = _PRODUCER.unpack_from(buf, PRODUCER_AT)
    return producer_id, epoch, sequence


def sent_headers(buf: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of the whole batches that a client sent, with Kafka's checks.

    An incomplete batch at the end is left out. Raises CorruptData for an impossible header, or impossible length or
    magic of the incomplete batch.
    """
    pos, end = 0, len(buf)
    while end - pos >= LOG_OVERHEAD:
        (length,) = _LENGTH.unpack_from(buf, pos + LENGTH_AT)
        if length < LEGACY_OVERHEAD:
            raise CorruptData(f"batch at {pos}: a length of {length} is less than a header's")
        if end - pos <= MAGIC_AT:
            return
        if buf[pos + MAGIC_AT] > 2:
            raise CorruptData(f"batch at {pos}: magic {buf[pos + MAGIC_AT]} is not known")
        if pos + LOG_OVERHEAD + length > end:
            return
        header = parse_header(buf, pos)
        yield pos, header
        pos += header.length


def iter_headers(buf: memoryview | bytes | bytearray, pos: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of the whole batches; an incomplete one at the end is left out.

    Raises CorruptData for an impossible header.
    """
    end = len(buf)
    while end - pos >= LOG_OVERHEAD + MAGIC_AT - LEADER_EPOCH_AT + 2:
        (length,) = _LENGTH.unpack_from(buf, pos + LENGTH_AT)
        if pos + LOG_OVERHEAD + length > end:
            return
        header = parse_header(buf, pos)
        yield pos, header
        pos += header.length
