"""Decodes message sets of magic 0 and 1 (Produce v0 to v2, old segments), and converts them to v2 batches.

A compressed set is one wrapper message whose value has the messages. With magic 1 the offsets in it count from 0, and
the wrapper has the offset of the last one; with magic 0 they are absolute (KIP-31, KIP-32).
"""

import struct
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.records import compression as codecs
from logyard.broker.records.build import append_record, seal
from logyard.broker.records.compression import Recoding
from logyard.broker.records.compression_stream import Packer
from logyard.broker.records.decode import Record
from logyard.broker.records.decompression_stream import HELD_BYTES_MAX, PIECE_BYTES
from logyard.broker.records.header import (
    HEADER_SIZE,
    LENGTH_AT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    iter_headers,
)
from logyard.broker.records.header_validation import Bounds, crc_matches
from logyard.broker.records.message_set import unpacked
from logyard.broker.records.pauses import MESSAGES, rest
from logyard.broker.records.record_validation import Refused
from logyard.broker.records.room import ROOM

_LENGTH = struct.Struct(">i")
# A message that is held is among the bytes before, by itself, its value, and in the batch that is made of it.
HELD_COPIES = 4
_KEY_AT = (18, 26)


class WrongChecksum(CorruptData):
    """The checksum of a message is wrong."""


class Message(NamedTuple):
    """One message; a wrapper is not decompressed."""

    header: BatchHeader
    key: bytes | None
    value: bytes | None


def messages(buf: memoryview) -> Iterator[Message]:
    """Yield the whole outer messages and verify their checksums; an incomplete one at the end is left out.

    Raises CorruptData, also for a message of magic 2.
    """
    for pos, header in iter_headers(buf):
        if header.magic not in (0, 1):
            raise CorruptData(f"message at {pos}: magic {header.magic} in an old message set")
        if not crc_matches(buf, pos, header):
            raise WrongChecksum(f"message at {pos} with offset {header.base_offset}: the checksum is wrong")
        end = pos + header.length
        key, at = _sized(buf, pos + _KEY_AT[header.magic], end)
        value, at = _sized(buf, at, end)
        if at != end:
            raise CorruptData(f"message at {pos}: {end - at} bytes after its value")
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
    """Decode a message set of magic 0 and 1, and its wrappers; magic 0 has timestamp -1. Raises CorruptData."""
    return list(iter_legacy(buf))


def iter_legacy(buf: memoryview | bytes | bytearray, *, offsets: bool = True) -> Iterator[Record]:
    """Yield the same records one by one; only a window of a wrapper is in memory.

    With `offsets` False, records of wrappers may have relative offsets; computing the others needs an additional pass.
    """
    for message in messages(memoryview(buf)):
        if message.header.compression == codecs.NONE:
            yield _record(message)
        else:
            yield from _unwrapped(message, offsets)


def _record(message: Message) -> Record:
    return Record(message.header.base_offset, message.header.max_timestamp, message.key, message.value)


def _unwrapped(wrapper: Message, offsets: bool) -> Iterator[Record]:
    header = wrapper.header
    shift = 0
    # Some producers sent wrappers with offset 0: their offsets inside are not changed.
    if header.magic == 1 and header.base_offset and offsets:
        shift = header.base_offset - deque(_inner(wrapper), maxlen=1)[0].header.base_offset
    stamped = header.magic == 1 and header.timestamp_type is TimestampType.LOG_APPEND_TIME
    for message in _inner(wrapper):
        timestamp = header.max_timestamp if stamped else message.header.max_timestamp
        yield Record(message.header.base_offset + shift, timestamp, message.key, message.value)


def _inner(wrapper: Message) -> Iterator[Message]:
    """Yield the messages of a wrapper, at least one; an incomplete one at the end is left out."""
    header = wrapper.header
    where = f"the compressed message at offset {header.base_offset}"
    if wrapper.value is None:
        raise CorruptData(f"{where} has no value")
    waiting, wanted, count = bytearray(), 0, 0
    last: Message | None = None
    with ExitStack() as room:
        for piece in unpacked(header.compression, wrapper.value, header.magic):
            waiting += piece
            if len(waiting) < wanted:
                continue
            used = 0
            for last in messages(memoryview(bytes(waiting))):
                if last.header.compression or last.header.magic != header.magic:
                    raise CorruptData(f"{where} holds another, or another magic")
                yield last
                used += last.header.length
                count += 1
                if count % MESSAGES == 0:
                    rest()
            del waiting[:used]
            wanted = LOG_OVERHEAD + _LENGTH.unpack_from(waiting, LENGTH_AT)[0] if len(waiting) >= LOG_OVERHEAD else 0
            if wanted > HELD_BYTES_MAX:
                raise CorruptData(f"{where} holds one of {wanted} bytes")
            room.close()
            room.enter_context(ROOM.taken(HELD_COPIES * wanted))
    if last is None:
        raise CorruptData(f"{where} holds nothing")
    if header.magic == 1 and 0 < header.base_offset < last.header.base_offset:
        raise CorruptData(f"{where} holds {last.header.base_offset + 1} offsets, which begin below 0")


def ordered(header: BatchHeader, data: memoryview) -> Iterator[Record]:
    """Yield the records of the outer message in `data`, one by one.

    Raises CorruptData, also if the offsets inside do not ascend, or exceed the message's own.
    """
    before = -1
    for record in iter_legacy(data):
        if not before < record.offset <= header.last_offset:
            raise CorruptData(f"the message at offset {header.last_offset}: the offsets in it do not ascend to its own")
        before = record.offset
        yield record
    if before < 0:
        raise CorruptData(f"the message at offset {header.last_offset} is cut short")


def measured(header: BatchHeader, data: memoryview) -> BatchHeader:
    """Return the header of the outer message in `data` with base offset, last offset delta and count as in a v2 batch.

    Raises CorruptData as `ordered` does.
    """
    first, count = -1, 0
    for record in ordered(header, data):
        first = record.offset if count == 0 else first
        count += 1
    return header._replace(base_offset=first, last_offset_delta=header.last_offset - first, count=count)


def upconvert(buf: memoryview, bounds: Bounds, now_ms: int) -> bytearray:
    """Convert a producer's message set to the v2 batch that a leader appends, and validate its records.

    The batch has base offset 0, offsets without gaps, and the set's codec unless the topic has another.
    Raises ApiError: CORRUPT_MESSAGE (a checksum), INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE,
    UNKNOWN_SERVER_ERROR (it cannot be decompressed, or a time is before 1970; as in Kafka). It is a `RecordErrors` if
    single records are refused.
    """
    try:
        codec = _codec_of(buf, bounds)
        return _converted(buf, bounds.recoding or Recoding(codec), bounds, now_ms)
    except WrongChecksum as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    except codecs.BrokenStream as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
    except CorruptData as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error


def _codec_of(view: memoryview, bounds: Bounds) -> int:
    """Check all outer messages, and return the set's codec."""
    found = []
    for number, (pos, header) in enumerate(iter_headers(view), start=1):
        if number % MESSAGES == 0:
            rest()
        if header.length > bounds.max_message_bytes:
            text = f"a message has {header.length} bytes, max.message.bytes is {bounds.max_message_bytes}"
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, text)
        if not crc_matches(view, pos, header):
            raise WrongChecksum(f"message at {pos} with offset {header.base_offset}: the checksum is wrong")
        found.append(header)
    if not found:
        raise CorruptData("the message set is empty or cut short")
    codec = codecs.NONE
    for header in found:
        if not codecs.is_known(header.compression):
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"compression type {header.compression} does not exist")
        codec = header.compression or codec
    if codec != codecs.NONE and len(found) > 1:
        raise CorruptData("a compressed message must be the only one")
    if any(header.magic != found[0].magic for header in found):
        raise CorruptData("messages of several formats")
    return codec


def _converted(view: memoryview, wanted: Recoding, bounds: Bounds, now_ms: int) -> bytearray:
    packer = Packer(wanted.codec, wanted.level, bounds.max_message_bytes - HEADER_SIZE)
    count, base_timestamp, latest = 0, NO_TIMESTAMP, NO_TIMESTAMP
    body = bytearray()
    for number, message in enumerate(messages(view), start=1):
        if number % MESSAGES == 0:
            rest()
        refused = Refused()
        stamped = message.header.magic == 1 and bool(message.header.attributes & LOG_APPEND_TIME_BIT)
        plain = message.header.compression == codecs.NONE
        for index, record in enumerate([_record(message)] if plain else _unwrapped(message, offsets=False)):
            refused.look_at(index, record, stamped, bounds, now_ms)
            if record.timestamp < NO_TIMESTAMP:
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"record {index}: its time is before 1970")
            if not count:
                base_timestamp = record.timestamp
            latest = max(latest, record.timestamp)
            append_record(body, record._replace(offset=count), 0, base_timestamp)
            count += 1
            if len(body) > PIECE_BYTES:
                packer.add(body)
                body = bytearray()
        refused.raise_if_any()
    packer.add(body)
    fields = (wanted.codec, count - 1, base_timestamp, latest, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
    return seal(packer.finish(), 0, -1, fields, count)
