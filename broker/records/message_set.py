"""Encodes messages of magic 0 and 1: single ones, and compressed wrappers with several (`legacy.py` decodes them).

In a wrapper of magic 1 offsets count from its first message, in one of magic 0 they are absolute (KIP-31). With magic 0
the checksum of an lz4 descriptor covers the frame's magic number too, as in Kafka 0.8 (KIP-57), whose readers refuse
any other.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Protocol

from logyard.broker.errors import CorruptData
from logyard.broker.records import compression
from logyard.broker.records.compression_stream import Packer
from logyard.broker.records.crc import crc32
from logyard.broker.records.decompression_stream import HELD_BYTES_MAX, Buffer, pieces
from logyard.broker.records.header import NO_TIMESTAMP
from logyard.broker.records.stream import Record
from logyard.broker.records.xxhash32 import xxhash32

# Offset, length, checksum.
_FRAME = struct.Struct(">qiI")
_CHECKSUM_SIZE = 4
# Magic, attributes, with magic 1 the timestamp, the key's length.
_HEAD_0, _HEAD_1 = struct.Struct(">bbi"), struct.Struct(">bbqi")
_INT32 = struct.Struct(">i")

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE, _LZ4_DICTIONARY = 0x08, 0x01


class Keyed(Protocol):
    """What of a record a message has; the C reader's records are of this kind too."""

    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...


def add_message(out: bytearray, record: Keyed, offset: int, magic: int, attributes: int) -> None:
    """Encode one message with that offset (in a wrapper of magic 1 it counts from the first message)."""
    # Hot path of old consumers: keys and values are copied once.
    key, value = record.key, record.value
    key_size = -1 if key is None else len(key)
    if magic == 1:
        head = _HEAD_1.pack(magic, attributes, record.timestamp, key_size)
    else:
        head = _HEAD_0.pack(magic, attributes, key_size)
    if key:
        head += key
    if value is None:
        head += _INT32.pack(-1)
        value = b""
    else:
        head += _INT32.pack(len(value))
    out += _FRAME.pack(offset, _CHECKSUM_SIZE + len(head) + len(value), crc32(value, crc32(head)))
    out += head
    out += value


def message(record: Keyed, offset: int, magic: int, attributes: int) -> bytes:
    """Return one encoded message, as `add_message` does."""
    out = bytearray()
    add_message(out, record, offset, magic, attributes)
    return bytes(out)


def wrapper(kept: Iterable[Record], codec: int, magic: int, time_bit: int, timestamp: int | None = None) -> bytes:
    """Encode records, in ascending order of offset, as one compressed message; b"" if there are none.

    :param time_bit: LOG_APPEND_TIME_BIT or 0.
    :param timestamp: the wrapper's own (ms); None: the largest inside.
    """
    packer = Packer(codec, None, HELD_BYTES_MAX)
    base, last, latest = 0, -1, NO_TIMESTAMP
    for record in kept:
        if last < 0 and magic == 1:
            base = record.offset
        last, latest = record.offset, max(latest, record.timestamp)
        packer.add(message(record, record.offset - base, magic, time_bit))
    if last < 0:
        return b""
    packed = _as_kafka_0_8(bytes(packer.finish())) if codec == compression.LZ4 and magic == 0 else packer.finish()
    return message(
        Record(last, latest if timestamp is None else timestamp, None, bytes(packed)), last, magic, time_bit | codec
    )


def pack(codec: int, data: bytes, magic: int) -> bytes:
    """Compress the content of a wrapper of that magic."""
    packed = compression.compress(codec, data)
    return _as_kafka_0_8(packed) if codec == compression.LZ4 and magic == 0 else packed


def _as_kafka_0_8(packed: bytes) -> bytes:
    end = _descriptor_end(packed)
    return packed[:end] + bytes([_checksum(packed[:end])]) + packed[end + 1 :]


def unpacked(codec: int, data: bytes, magic: int) -> Iterator[Buffer]:
    """Decompress the content of a wrapper of that magic in pieces; with magic 0 an lz4 frame may have any checksum.

    Raises CorruptData, also for a codec that the old formats do not have, and for more bytes than a batch may have.
    """
    if codec > compression.LZ4:
        raise CorruptData(f"codec {codec} needs magic 2")
    if codec == compression.LZ4 and magic == 0:
        end = _descriptor_end(data)
        data = data[:end] + bytes([_checksum(data[len(_LZ4_MAGIC) : end])]) + data[end + 1 :]
    return pieces(codec, memoryview(data))


def _descriptor_end(frame: bytes) -> int:
    """Return the position of the descriptor's checksum in an lz4 frame. Raises CorruptData."""
    if len(frame) < 7 or frame[:4] != _LZ4_MAGIC:
        raise CorruptData(f"lz4 data of {len(frame)} bytes does not begin as a frame")
    end = 6 + (8 if frame[4] & _LZ4_CONTENT_SIZE else 0) + (4 if frame[4] & _LZ4_DICTIONARY else 0)
    if len(frame) <= end:
        raise CorruptData(f"lz4 data of {len(frame)} bytes is cut short")
    return end


def _checksum(head: bytes) -> int:
    """Return the checksum of a descriptor: the second byte of its xxHash32 (seed 0)."""
    return xxhash32(head) >> 8 & 0xFF
