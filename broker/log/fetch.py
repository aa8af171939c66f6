"""What a fetch gets: whole batches of one segment, found through the index and bounded by size and offset.

A look-up reads a few batch headers near two index entries. Where these are not in memory (and where a sealed
segment's index is not loaded) nothing is read on the spot: the slice is *cold*, `load_nowait` answers None, and
`load`, in a thread, does look-up and read together.
"""

from collections.abc import Callable
from typing import NamedTuple

from logyard.broker.errors import CorruptData, StorageError
from logyard.broker.log.disk.port import DiskFile
from logyard.broker.log.segment import scan
from logyard.broker.log.segment.segment import Segment

EMPTY = memoryview(b"")


class Span(NamedTuple):
    """Bytes of a log file; empty where nothing may be read."""

    position: int
    size: int


class Wanted(NamedTuple):
    """One read: from the batch that holds `offset`, at most `max_bytes` (the first batch whole if `min_one`).

    `limit_offset` is None where all of the segment may be read.
    """

    offset: int
    max_bytes: int
    limit_offset: int | None
    min_one: bool


def locate(segment: Segment, size: int, wanted: Wanted, read: scan.Read) -> Span | None:
    """Find the bytes to answer with; None where the segment (its first `size` bytes) ends below the offset.

    In a thread, `segment` is a reader: the log may be cut meanwhile, and then what is found here must not be kept.
    Raises scan.NotCached if `read` says so.
    """
    start = segment.known.position_of(wanted.offset)
    first_size = None
    if start is None:
        place = scan.first_reaching(read, segment.index.floor(wanted.offset), size, wanted.offset)
        if place is None:
            return None
        start, first_size = place.position, place.size
    if start >= size:
        return None
    end = size if wanted.limit_offset is None else _limit_position(segment, start, size, wanted.limit_offset, read)
    if end - start > wanted.max_bytes:
        end = _cut(segment, start, end, wanted, first_size, read)
    return Span(start, max(0, end - start))


def _limit_position(segment: Segment, start: int, size: int, limit_offset: int, read: scan.Read) -> int:
    """Where the first batch begins that reaches the limit: it and all behind it stay out."""
    known = segment.known.position_of(limit_offset)
    if known is not None:
        return min(known, size)
    try:
        place = scan.first_reaching(read, max(start, segment.index.floor(limit_offset)), size, limit_offset)
    except scan.CutShort:
        place = None  # a closed segment that lost its tail
    if place is None:
        return size
    segment.known.remember(limit_offset, place.position)
    return place.position


def _cut(segment: Segment, start: int, end: int, wanted: Wanted, first_size: int | None, read: scan.Read) -> int:
    """The end of the last whole batch within max_bytes, or of the first batch."""
    limit = start + wanted.max_bytes
    boundary, next_offset = scan.boundary_within(read, max(start, segment.index.floor_of_position(limit)), end, limit)
    if next_offset is not None:
        # The next fetch of a reader that goes on from here.
        segment.known.remember(next_offset, boundary)
    if boundary > start or not wanted.min_one:
        return boundary
    if first_size is None:
        first_size = next(scan.places(read, start, end)).size
    return start + first_size


class LogSlice:
    """Batches to be read from a log, bound to an open file: it stays readable when the segment is deleted.

    `size` is exact unless the slice is cold; then it is the most that may come (the first batch may be larger).
    When the log was truncated or compacted in between, nothing is handed out: ask again.
    """

    __slots__ = ("_cut_count", "_cuts", "_file", "_resolve", "_span", "size")

    def __init__(
        self,
        file: DiskFile | None,
        span: Span | None,
        *,
        size: int,
        cuts: Callable[[], int],
        resolve: Callable[[], tuple[Segment, Span] | None] | None = None,
    ) -> None:
        self._file = file
        self._span = span
        self._resolve = resolve
        self._cuts = cuts
        self._cut_count = cuts()
        self.size = size

    def __len__(self) -> int:
        return self.size

    @property
    def is_cold(self) -> bool:
        """Whether the bytes have yet to be found, which only `load` does."""
        return self._span is None

    def load_nowait(self) -> memoryview | None:
        """Return the batches if they are in memory; None where `load` has to be called in a thread."""
        span = self._span
        if span is None:
            return None
        if span.size == 0 or self._file is None:
            return EMPTY
        data = self._file.read_nowait(span.size, span.position)
        return data if self._cuts() == self._cut_count else EMPTY

    def load(self) -> memoryview:
        """Return the batches, waiting for the disk. Safe in a thread while the log is appended to."""
        try:
            if self._span is None:
                self._look_up()
            span = self._span
            if self._file is None or span is None or span.size == 0:
                return EMPTY
            data = memoryview(self._file.read_at(span.size, span.position))
        except FileNotFoundError:
            return EMPTY  # removed by retention meanwhile
        except CorruptData as error:
            if self._cuts() != self._cut_count:
                return EMPTY
            raise StorageError(f"reading a segment: {error}") from error
        return data if self._cuts() == self._cut_count else EMPTY

    def _look_up(self) -> None:
        found = self._resolve() if self._resolve is not None else None
        if found is None:
            self._span, self.size = Span(0, 0), 0
            return
        segment, self._span = found
        self._file = segment.log_file()
        self.size = self._span.size
