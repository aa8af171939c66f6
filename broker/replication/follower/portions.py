"""Fetched records in portions, so that the event loop is not blocked: batches can have 68 bytes, and each takes 6
µs."""

import struct
from collections.abc import Iterator

# About 6 ms: a megabyte of the smallest batches would take 90.
BATCHES_MAX = 1000

# Records of so many bytes are one portion whatever is in them: a batch has a length and an offset at least.
ONE_PORTION_BYTES = BATCHES_MAX * 12

_LENGTH = struct.Struct(">i")
_LENGTH_AT, _OVERHEAD = 8, 12


def portions(records: bytes | bytearray | memoryview, batches_max: int = BATCHES_MAX) -> Iterator[memoryview]:
    """Cut the records into runs of at most `batches_max` batches; the last has the partial batch at the end, and is
    never left out.

    Bytes that are not batches are not checked: they are in the last portion.
    """
    view = memoryview(records)
    start = pos = count = 0
    end = len(view)
    while end - pos >= _OVERHEAD:
        (length,) = _LENGTH.unpack_from(view, pos + _LENGTH_AT)
        if length <= 0 or pos + _OVERHEAD + length > end:
            break
        if count == batches_max:
            yield view[start:pos]
            start, count = pos, 0
        pos += _OVERHEAD + length
        count += 1
    yield view[start:]
