"""Fetched records in portions, so that the event loop is not blocked: batches can have 68 bytes, and each takes 6
µs."""

import struct
from collections.abc import Iterator

# About 6 ms: a megabyte of the smallest batches would take 90.
BATCHES_MAX = 1000

# Records of so many bytes are one portion whatever is in them: a batch has a length and an offset at least.
ONE_PORTION_BYTES = BATCHES_MAX * 12

# Of one answer: about as long as a portion takes. An answer may have some bytes of thousands of partitions.
PARTITIONS_AT_ONCE = 64
BYTES_AT_ONCE = 8 * ONE_PORTION_BYTES

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


class Turn:
    """Counts what was taken of an answer since the event loop served others."""

    def __init__(self) -> None:
        self._partitions = self._bytes = 0

    def is_over(self, size: int) -> bool:
        """Count a partition with so many bytes; whether others are to be served before it is taken."""
        over = self._partitions >= PARTITIONS_AT_ONCE or self._bytes >= BYTES_AT_ONCE
        if over:
            self._partitions = self._bytes = 0
        self._partitions += 1
        self._bytes += size
        return over
