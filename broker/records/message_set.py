"""Messages of magic 0 and 1 written: one, or a compressed wrapper with several inside (`legacy.py` reads them).

What is particular: offsets inside a wrapper count from its first message with magic 1 and are absolute with magic 0
(KIP-31); lz4 frames of magic 0 carry the checksum of their descriptor as Kafka 0.8 computed it, over the frame's magic
number too (KIP-57), and its readers refuse any other.
"""

import struct
from collections.abc import Sequence

from logyard.broker.errors import CorruptData
from logyard.broker.records import compression
from logyard.broker.records.crc import crc32
from logyard.broker.records.decode import Record

_OVERHEAD = struct.Struct(">qi")
_UINT32 = struct.Struct(">I")
_MAGIC_ATTRIBUTES = struct.Struct(">bb")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE, _LZ4_DICTIONARY = 0x08, 0x01
_MASK = 0xFFFFFFFF
_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393


def message(record: Record, offset: int, magic: int, attributes: int) -> bytes:
    """Return one message: `offset` is what it says (in a wrapper of magic 1 that counts from the first)."""
    content = _MAGIC_ATTRIBUTES.pack(magic, attributes)
    if magic == 1:
        content += _INT64.pack(record.timestamp)
    content += _sized(record.key) + _sized(record.value)
    return _OVERHEAD.pack(offset, len(content) + _UINT32.size) + _UINT32.pack(crc32(content)) + content


def wrapper(kept: Sequence[Record], codec: int, magic: int, time_bit: int, timestamp: int | None = None) -> bytes:
    """Return one compressed message that holds them all, in ascending order of offset.

    :param time_bit: LOG_APPEND_TIME_BIT or 0.
    :param timestamp: the wrapper's own; None: the largest inside.
    """
    base = kept[0].offset if magic == 1 else 0
    inner = b"".join(message(r, r.offset - base, magic, time_bit) for r in kept)
    latest = max(r.timestamp for r in kept) if timestamp is None else timestamp
    outer = Record(kept[-1].offset, latest, None, pack(codec, inner, magic))
    return message(outer, outer.offset, magic, time_bit | codec)


def pack(codec: int, data: bytes, magic: int) -> bytes:
    """Compress what goes into a wrapper of that magic."""
    packed = compression.compress(codec, data)
    if codec != compression.LZ4 or magic != 0:
        return packed
    end = _descriptor_end(packed)
    return packed[:end] + bytes([_checksum(packed[:end])]) + packed[end + 1 :]


def unpack(codec: int, data: bytes, magic: int) -> bytes:
    """Decompress what a wrapper of that magic holds, whatever checksum a descriptor of magic 0 has.

    Raises CorruptData, also for a codec that the old formats do not know, and for more bytes than any batch may have.
    """
    if codec > compression.LZ4:
        raise CorruptData(f"codec {codec} needs magic 2")
    if codec == compression.LZ4 and magic == 0:
        end = _descriptor_end(data)
        data = data[:end] + bytes([_checksum(data[len(_LZ4_MAGIC) : end])]) + data[end + 1 :]
    return compression.decompress(codec, data)


def _sized(value: bytes | None) -> bytes:
    return _INT32.pack(-1) if value is None else _INT32.pack(len(value)) + value


def _descriptor_end(frame: bytes) -> int:
    """Where the checksum of an lz4 frame's descriptor lies; raises CorruptData."""
    if len(frame) < 7 or frame[:4] != _LZ4_MAGIC:
        raise CorruptData(f"lz4 data of {len(frame)} bytes does not begin as a frame")
    end = 6 + (8 if frame[4] & _LZ4_CONTENT_SIZE else 0) + (4 if frame[4] & _LZ4_DICTIONARY else 0)
    if len(frame) <= end:
        raise CorruptData(f"lz4 data of {len(frame)} bytes is cut short")
    return end


def _checksum(head: bytes) -> int:
    """The checksum of a descriptor: the second byte of its xxHash32 (seed 0)."""
    return _xxh32(head) >> 8 & 0xFF


def _xxh32(data: bytes) -> int:
    """XxHash32 with seed 0, plainly: descriptors have 2 to 18 bytes."""
    at = 0
    if len(data) >= 16:
        lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        while len(data) - at >= 16:
            for n, word in enumerate(struct.unpack_from("<4I", data, at)):
                lanes[n] = _rotated(lanes[n] + word * _P2, 13) * _P1 & _MASK
            at += 16
        digest = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        digest = _P5
    digest += len(data)
    while len(data) - at >= 4:
        digest = _rotated(digest + int.from_bytes(data[at : at + 4], "little") * _P3, 17) * _P4
        at += 4
    for byte in data[at:]:
        digest = _rotated(digest + byte * _P5, 11) * _P1
    digest &= _MASK
    digest = (digest ^ digest >> 15) * _P2 & _MASK
    digest = (digest ^ digest >> 13) * _P3 & _MASK
    return digest ^ digest >> 16


def _rotated(value: int, by: int) -> int:
    value &= _MASK
    return (value << by | value >> (32 - by)) & _MASK
