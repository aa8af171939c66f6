"""What a look-up and the read behind it need from the disk, read at once.

A look-up by itself reads a few headers, one of them behind the bytes that will be answered: where nothing is in memory
each is a wait for the disk, and to the system it looks as if somebody read here and there, so that it reads less ahead.
"""

from collections.abc import Callable

from logyard.broker.log.file_part import FILE_BYTES_MIN
from logyard.broker.log.segment import scan
from logyard.broker.log.segment.segment import Segment

# How far behind an index entry a batch may begin to be reached by the same read, if as much is asked for: the entry is
# that of the batch before.
BEHIND_ENTRY = 64 * 1024


class Window:
    """A file's bytes from a position on, read once; what is not among them is read by itself."""

    __slots__ = ("_data", "_read", "_start")

    def __init__(self, read: Callable[[int, int], bytes], start: int, size: int) -> None:
        self._read, self._start = read, start
        self._data = memoryview(read(size, start))

    def read(self, size: int, position: int) -> bytes | memoryview:
        """Return the bytes at that position; fewer where the file ends before."""
        found = self.part(size, position)
        return self._read(size, position) if found is None else found

    def part(self, size: int, position: int) -> memoryview | None:
        """Return these bytes if all of them were read at once."""
        at = position - self._start
        return self._data[at : at + size] if 0 <= at <= len(self._data) - size else None


def window_of(reader: Segment, size: int, offset: int, max_bytes: int) -> Window:
    """Read what answers a fetch of so many bytes from `offset` on, and the header behind; `size` is the segment's."""
    start, length = _place(reader, size, offset, max_bytes)
    return Window(reader.read, start, length)


def is_warmed(reader: Segment, size: int, offset: int, max_bytes: int) -> bool:
    """Bring the same bytes into memory; returns False if they are to be read: few, or nothing tells what is there."""
    start, length = _place(reader, size, offset, max_bytes)
    return length >= FILE_BYTES_MIN and reader.log_file().warm(length, start)


def _place(reader: Segment, size: int, offset: int, max_bytes: int) -> tuple[int, int]:
    start, more = reader.cache.position_of(offset), scan.GLANCE
    if start is None:
        start, more = reader.index.floor(offset), scan.GLANCE + min(BEHIND_ENTRY, max_bytes)
    return start, max(min(max_bytes + more, size - start), 0)
