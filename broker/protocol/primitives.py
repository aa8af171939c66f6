"""The protocol's primitive types, which generated and hand-written codecs use.

Readers take a buffer and a position, and return the value and the next position. They check each length against the end
of the buffer first. They raise CorruptData or one of `MALFORMED`; callers turn the latter into CorruptData that names
the message (`malformed`).
"""

import struct
import uuid
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NoReturn

from logyard.broker.errors import CorruptData

MALFORMED = (struct.error, IndexError, UnicodeDecodeError, OverflowError)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")

# As in Kafka, this is the limit for compact strings too, although their length could be larger.
STRING_BYTES_MAX: Final = 32767
# What is parsed on the event loop has few of them (Kafka defines none or a few): a frame has room for millions.
TAGS_MAX: Final = 256


def malformed(what: str, error: Exception) -> CorruptData:
    """Return the error for a message that cannot be decoded."""
    return CorruptData(f"{what} is cut short or malformed: {error}")


def bad_length(name: str, length: int) -> NoReturn:
    """Raise CorruptData: a length is negative, or beyond the end of the buffer."""
    raise CorruptData(f"{name}: a length of {length} does not fit the frame")


def bad_null(name: str) -> NoReturn:
    """Raise CorruptData: a field is null that must not be in this version."""
    raise CorruptData(f"{name} is null but must not be")


def read_uvarint(data: memoryview, pos: int) -> tuple[int, int]:
    """Read an unsigned varint of at most five bytes (32 bits)."""
    first: int = data[pos]
    if first < 128:
        return first, pos + 1
    return read_uvarint_rest(data, pos + 1, first)


def read_uvarint_rest(data: memoryview, pos: int, first: int) -> tuple[int, int]:
    """Read the rest of an unsigned varint whose first byte has its top bit set."""
    byte: int = data[pos]
    if byte < 128:
        return first & 0x7F | byte << 7, pos + 1
    value = first & 0x7F | (byte & 0x7F) << 7
    for shift in (14, 21, 28):
        pos += 1
        byte = data[pos]
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, pos + 1
    raise CorruptData("a varint is longer than 32 bits")


def read_compact_string(data: memoryview, pos: int, end: int, name: str) -> tuple[str | None, int]:
    length, pos = read_uvarint(data, pos)
    if length == 0:
        return None, pos
    stop = pos + length - 1
    if stop > end or length > STRING_BYTES_MAX + 1:
        bad_length(name, length - 1)
    return str(data[pos:stop], "utf-8"), stop


def read_string(data: memoryview, pos: int, end: int, name: str) -> tuple[str | None, int]:
    (length,) = _INT16.unpack_from(data, pos)
    pos += 2
    if length == -1:
        return None, pos
    stop = pos + length
    if length < 0 or stop > end:
        bad_length(name, length)
    return str(data[pos:stop], "utf-8"), stop


def read_tag_count(data: memoryview, pos: int) -> tuple[int, int]:
    """Read how many tagged fields follow. Raises CorruptData for more than TAGS_MAX."""
    count, pos = read_uvarint(data, pos)
    if count > TAGS_MAX:
        raise CorruptData(f"{count} tagged fields in one place, at most {TAGS_MAX} are accepted")
    return count, pos


def skip_tags(data: memoryview, pos: int, end: int) -> int:
    """Return the position after a section of tagged fields, which are not decoded: at most TAGS_MAX."""
    count, pos = read_tag_count(data, pos)
    for _ in range(count):
        _, pos = read_uvarint(data, pos)
        size, pos = read_uvarint(data, pos)
        pos += size
        if pos > end:
            bad_length("tagged field", size)
    return pos


@lru_cache(maxsize=8192)
def uuid_from(raw: bytes) -> uuid.UUID:
    """Return the UUID of 16 bytes, cached: the same few topic ids are read often."""
    return uuid.UUID(bytes=raw)


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if value < 128:
        return _ONE_BYTE[value]
    if value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 1 << 21:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = [bytes((n,)) for n in range(128)]


def compact_string(value: str | None) -> bytes:
    if value is None:
        return b"\0"
    raw = value.encode()
    return uvarint(len(raw) + 1) + raw


def string(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    raw = value.encode()
    return _INT16.pack(len(raw)) + raw


def append_node_endpoints(out: bytearray, endpoints: Sequence[tuple[int, str, int, str | None]]) -> None:
    """Append a body's tagged fields: the leaders' endpoints (id, host, port, rack) as tag 0 (KIP-951)."""
    if not endpoints:
        out.append(0)
        return
    content = bytearray(uvarint(len(endpoints) + 1))
    for node_id, host, port, rack in endpoints:
        content += _INT32.pack(node_id)
        content += compact_string(host)
        content += _INT32.pack(port)
        content += compact_string(rack)
        content.append(0)
    out += b"\1\0"
    out += uvarint(len(content))
    out += content
