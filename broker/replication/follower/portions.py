"""What a follower has fetched, in portions: a batch may have 68 bytes, and each takes 6 µs of the event loop."""

import struct
from collections.abc import Iterator

# About 6 ms: a megabyte of the smallest batches would take 90.
BATCHES_MAX = 1000

_LENGTH = struct.Struct(">i")
_LENGTH_AT, _OVERHEAD = 8, 12


def portions(records: bytes | bytearray | memoryview, batches_max: int = BATCHES_MAX) -> Iterator[memoryview]:
    """Cut the batches into rows of at most so many; the last has what is cut short behind them, and is never left out.

    Bytes that are no batches are not looked at: they come as they are, in the last.
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
