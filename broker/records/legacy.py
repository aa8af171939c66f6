"""Message sets of magic 0 and 1 (Produce v0-2, old segments): their messages, and the v2 batch made of them.

A compressed set is one wrapper message whose value holds the messages. With magic 1 the offsets inside count
from 0 and the wrapper has the offset of the last one; with magic 0 they are absolute (KIP-31, KIP-32).
"""

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.records import compression as codecs
from logyard.broker.records.build import build
from logyard.broker.records.decode import Record
from logyard.broker.records.header import (
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    TimestampType,
    iter_headers,
)
from logyard.broker.records.message_set import unpack
from logyard.broker.records.validate import crc_matches

_LENGTH = struct.Struct(">i")
_KEY_AT = (18, 26)


class Message(NamedTuple):
    """One message as the wire has it, before wrappers are opened."""

    header: BatchHeader
    key: bytes | None
    value: bytes | None


def messages(buf: memoryview) -> Iterator[Message]:
    """Yield the outermost messages that are whole, checksums verified; a message cut short at the end is left out.

    Raises CorruptData, for a message of magic 2 too.
    """
    for pos, header in iter_headers(buf):
        if header.magic not in (0, 1):
            raise CorruptData(f"message at {pos}: magic {header.magic} in an old message set")
        if not crc_matches(buf, pos, header):
            raise CorruptData(f"message at {pos} with offset {header.base_offset}: the checksum is wrong")
        end = pos + header.length
        key, at = _sized(buf, pos + _KEY_AT[header.magic], end)
        value, at = _sized(buf, at, end)
        if at != end:
            raise CorruptData(f"message at {pos}: {end - at} bytes behind its value")
        yield Message(header, key, value)


def _sized(buf: memoryview, pos: int, end: int) -> tuple[bytes | None, int]:
    if pos + 4 > end:
        raise CorruptData(f"message: no room for a length at {pos}")
    (length,) = _LENGTH.unpack_from(buf, pos)
    pos += 4
    if length == -1:
        return None, pos
    if length < 0 or pos + length > end:
        raise CorruptData(f"message: a length of {length} at {pos} does not fit it")
    return bytes(buf[pos : pos + length]), pos + length


def legacy_records(buf: memoryview | bytes | bytearray) -> list[Record]:
    """Open a message set of magic 0 and 1, wrappers included; timestamp -1 for magic 0. Raises CorruptData."""
    found: list[Record] = []
    for message in messages(memoryview(buf)):
        if message.header.compression == codecs.NONE:
            found.append(_record(message))
        else:
            found += _unwrapped(message)
    return found


def _record(message: Message) -> Record:
    return Record(message.header.base_offset, message.header.max_timestamp, message.key, message.value)


def _unwrapped(wrapper: Message) -> list[Record]:
    header = wrapper.header
    where = f"the compressed message at offset {header.base_offset}"
    if wrapper.value is None:
        raise CorruptData(f"{where} has no value")
    inner = list(messages(memoryview(unpack(header.compression, wrapper.value, header.magic))))
    if any(m.header.compression or m.header.magic != header.magic for m in inner):
        raise CorruptData(f"{where} holds another, or another magic")
    found = [_record(m) for m in inner]
    if not found:
        raise CorruptData(f"{where} holds nothing")
    if header.magic == 1:
        # What some producers sent has a wrapper of offset 0, and counts as it is.
        shift = header.base_offset - found[-1].offset if header.base_offset else 0
        if shift < 0:
            raise CorruptData(f"{where} holds {found[-1].offset + 1} offsets, which begin below 0")
        found = [r._replace(offset=r.offset + shift) for r in found]
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            found = [r._replace(timestamp=header.max_timestamp) for r in found]
    return found


def opened(header: BatchHeader, data: memoryview) -> tuple[BatchHeader, list[Record]]:
    """Return the outermost message in `data` as a batch: its header with first offset, last offset delta and count as
    a v2 batch has them, and its records.

    Raises CorruptData, also where the offsets inside do not ascend to at most the message's own.
    """
    found = legacy_records(data)
    offsets = [r.offset for r in found]
    ascend = all(a < b for a, b in pairwise(offsets))
    if not found or not ascend or not 0 <= offsets[0] <= offsets[-1] <= header.base_offset:
        raise CorruptData(f"the message at offset {header.base_offset}: the offsets in it do not ascend to its own")
    delta = header.base_offset - offsets[0]
    return header._replace(base_offset=offsets[0], last_offset_delta=delta, count=len(found)), found


def upconvert(buf: memoryview | bytes | bytearray, *, compression: int | None = None) -> bytearray:
    """Make of a producer's message set the v2 batch that a leader appends: base offset 0, offsets without gaps.

    `compression` None keeps the codec of the set. A set of several wrappers becomes one batch, as in Kafka.
    Raises ApiError: CORRUPT_MESSAGE, INVALID_RECORD (nothing in it), INVALID_TIMESTAMP (LogAppendTime, which only
    a broker sets), UNSUPPORTED_COMPRESSION_TYPE.
    """
    view = memoryview(buf)
    try:
        found = legacy_records(view)
        outer = [header for _, header in iter_headers(view)]
    except CorruptData as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if not found:
        raise ApiError(ErrorCode.INVALID_RECORD, "the message set is empty or cut short")
    if any(header.attributes & LOG_APPEND_TIME_BIT for header in outer if header.magic == 1):
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, "producers must not set the timestamp type LogAppendTime")
    codec = outer[0].compression if compression is None else compression
    numbered = [r._replace(offset=n) for n, r in enumerate(found)]
    return build(numbered, base_offset=0, compression=codec)


def is_legacy(buf: memoryview) -> bool:
    """Whether the first message of a client's data is of magic 0 or 1; raises CorruptData when there is none."""
    for _, header in iter_headers(buf):
        return header.magic < 2
    raise CorruptData(f"{len(buf)} bytes hold no whole batch")
