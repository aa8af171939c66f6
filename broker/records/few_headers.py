"""Whether the records of a batch have few headers: how many records it has says little about how long it takes to read.

Hot path: the records of a producer's batch are mostly laid out alike, each field with as many bytes as in the record
before. So the first one is read field by field, and of those that follow, all lengths at once: two integers are read,
and one comparison of their continuation bits shows that the layout is the same.
"""

import struct
from typing import NamedTuple

from logyard.broker.errors import CorruptData
from logyard.broker.records.header import HEADER_SIZE
from logyard.broker.records.varint import read_varint

_CONTINUES = 0x8080808080808080
_quad, _word = struct.Struct("<Q").unpack_from, struct.Struct("<I").unpack_from


class _Layout(NamedTuple):
    """How many bytes a record's length, all up to and with its key's length, and its value's length have.

    Masks and patterns are of the continuation bits, in the integers that begin at the record and at the value's length.
    """

    size_bytes: int
    head_bytes: int
    value_bytes: int
    head_mask: int
    head_pattern: int
    value_mask: int
    value_pattern: int


def has_few(batch: memoryview, count: int, end: int, headers_max: int) -> bool:
    """Whether the first `count` records of an uncompressed v2 batch of `end` bytes have at most `headers_max` headers.

    False if one cannot be parsed. Who reads a batch whose header has this count reads no more of them.
    """
    headers, pos, left = 0, HEADER_SIZE, count
    try:
        while left > 0 and pos < end:
            more, following, layout = _read(batch, pos)
            headers += more
            if following <= pos or more < 0 or headers > headers_max:
                return False
            pos, left = following, left - 1
            if layout is not None:
                pos, left = _skip_alike(batch, pos, left, end, layout)
    except (IndexError, CorruptData):
        return False
    return True


def _read(batch: memoryview, pos: int) -> tuple[int, int, _Layout | None]:
    """Read the lengths of the record at `pos`: its number of headers, where it ends, its layout if it is a usual one.

    Raises IndexError and CorruptData.
    """
    size, at = read_varint(batch, pos)
    size_bytes, following = at - pos, at + size
    _, at = read_varint(batch, at + 1)  # the time, after the attributes
    _, at = read_varint(batch, at)  # the offset
    key_at = at
    key, at = read_varint(batch, at)
    head_bytes, is_usual = at - pos, at == key_at + 1
    value_at = at + max(key, 0)
    value, at = read_varint(batch, value_at)
    value_bytes = at - value_at
    count, _ = read_varint(batch, at + max(value, 0))
    if size <= 0:
        return count, pos, None
    if not is_usual or size_bytes > 3 or value_bytes > 3 or head_bytes > 8 or value_at + 4 > len(batch):
        return count, following, None
    # The attributes, a byte of any value, are behind the record's length.
    head_mask = _CONTINUES >> 64 - 8 * head_bytes & ~(0x80 << 8 * size_bytes)
    value_mask = _CONTINUES >> 64 - 8 * value_bytes
    (head,), (word,) = _quad(batch, pos), _word(batch, value_at)
    layout = _Layout(size_bytes, head_bytes, value_bytes, head_mask, head & head_mask, value_mask, word & value_mask)
    return count, following, layout


def _skip_alike(batch: memoryview, pos: int, left: int, end: int, layout: _Layout) -> tuple[int, int]:
    """Skip at most `left` records of this layout, with a value and no headers: return where, and how many are left."""
    size_bytes, head_bytes, value_bytes, head_mask, head_pattern, value_mask, value_pattern = layout
    key_shift, size_bits, value_bits = 8 * head_bytes - 8, (1 << 8 * size_bytes) - 1, (1 << 8 * value_bytes) - 1
    try:
        while left > 0 and pos < end:
            (head,) = _quad(batch, pos)
            if head & head_mask != head_pattern:
                break
            at = pos + head_bytes
            key = head >> key_shift & 0x7F
            if not key & 1:  # odd numbers are negative: null
                at += key >> 1
            (value,) = _word(batch, at)
            if value & value_mask != value_pattern:
                break
            head &= size_bits
            value &= value_bits
            # The groups of seven bits side by side, and the sign's bit, which is 0, shifted out.
            size = (head & 0x7F) >> 1 | (head & 0x7F00) >> 2 | (head & 0x7F0000) >> 3
            at += value_bytes + ((value & 0x7F) >> 1 | (value & 0x7F00) >> 2 | (value & 0x7F0000) >> 3)
            if (head | value) & 1 or batch[at] or not size:
                break
            pos += size_bytes + size
            left -= 1
    except (struct.error, IndexError):
        pass  # near the end of the batch
    return pos, left
