"""The bytes that a fetch reads: batches of one segment, found through the index, limited by size and offset.

As with Apache Kafka an answer is filled up to its limit, so that its last batch may be incomplete; readers leave that
out and fetch it again. So answers of a reader that is behind have one size: what its memory is reused for (librdkafka
read lz4 batches of 900 KB a fifth faster than in answers of whole batches, docs/speed-tried.md). Copies of a log get
whole batches where these are large: what they left out would count against their throttles, and be sent twice.

A look-up reads a few batch headers near two index entries. If these are not in memory, or a closed segment's index is
not loaded, nothing is read yet: the slice is *cold*, `load_nowait` returns None, and `load`, in a thread, does both the
look-up and the read, in one read of the disk where it can (read_window.py).
"""

from collections.abc import Callable
from typing import NamedTuple

from logyard.broker.errors import CorruptData, StorageError
from logyard.broker.log import layout, read_window
from logyard.broker.log.disk.port import DiskFile
from logyard.broker.log.file_part import FILE_BYTES_MIN, FilePart
from logyard.broker.log.segment import index_builder, scan
from logyard.broker.log.segment.index import AbortedTxn
from logyard.broker.log.segment.segment import Segment
from logyard.broker.log.segment.segment_list import SegmentList

EMPTY = memoryview(b"")
_new = tuple.__new__  # hot path: a NamedTuple's own is Python


class Span(NamedTuple):
    """A range of bytes in a log file; empty if nothing may be read. `data` are the bytes, if the look-up has them."""

    position: int
    size: int
    data: memoryview | None = None


NOTHING = Span(0, 0)

LARGE_BYTES = 64 * 1024
"""From this size of the first batch on the last whole one is looked for: what is left out of smaller ones is little."""
LOOKED_AT = 16
"""So many batches at most: each is a read of a header."""


class ReadBounds(NamedTuple):
    """One read: from the batch that holds `offset`, at most `max_bytes` (the first batch whole if `min_one`).

    `limit_offset` is None if all of the segment may be read. `whole`: large batches come whole, not only the first.
    """

    offset: int
    max_bytes: int
    limit_offset: int | None
    min_one: bool
    whole: bool


def locate(
    segment: Segment,
    size: int,
    read: scan.Read,
    offset: int,
    max_bytes: int,
    limit_offset: int | None,
    min_one: bool,
    whole: bool,
) -> Span | None:
    """Return the bytes to answer with; None if the segment (its first `size` bytes) ends below the offset.

    The last five arguments are those of ReadBounds.

    In a thread, pass a `Segment.reader`: the log may be cut meanwhile, and the results must not be cached then. Raises
    scan.NotCached if `read` does.
    """
    cache = segment.cache
    start = cache.position_of(offset)
    first_size = data = None
    if start is None:
        indexes = cache.indexes or segment.load_indexes()
        found = scan.first_reaching(read, indexes[0].floor(offset), size, offset)
        if found is None:
            return None
        (start, first_size, _, _), data = found
        # A fetch that waited reads again, and so do one that a quota put off and a reader that tries again.
        cache.remember(offset, start)
    if start >= size:
        return None
    reach = start + max_bytes
    end = size if limit_offset is None else _limit_position(segment, start, reach, size, limit_offset, read)
    if end > reach:
        if first_size is None:
            first_size = scan.size_at(read, start, end)
        # The first batch comes whole, or not at all.
        if first_size > max_bytes:
            end = start + first_size if min_one else start
        elif whole and first_size >= LARGE_BYTES:
            end = _last_whole(read, start + first_size, reach, end)
        else:
            end = reach
    length = end - start
    if length <= 0:
        return Span(start, 0)
    if data is not None:
        # Few small batches came along with the header of the first: they need not be read again.
        data = data[:length] if length <= len(data) else None
    return _new(Span, (start, length, data))


def _last_whole(read: scan.Read, position: int, reach: int, end: int) -> int:
    """Return where the last batch ends that ends before `reach`, from a boundary on; `reach` if it is far away."""
    for _ in range(LOOKED_AT):
        try:
            following = position + scan.size_at(read, position, end)
        except CorruptData:
            return position  # a reader that has come there is told
        if following > reach:
            return position
        position = following
    return reach


def _limit_position(segment: Segment, start: int, reach: int, size: int, limit_offset: int, read: scan.Read) -> int:
    """Return where the first batch begins that reaches the limit; it and all later ones are left out.

    If that is not before `reach`, any boundary between the two.
    """
    known = segment.cache.position_of(limit_offset)
    if known is not None:
        return min(known, size)
    begin = segment.index.floor(limit_offset)
    if begin > start and begin >= reach:
        return min(begin, size)
    try:
        found = scan.first_reaching(read, max(start, begin), size, limit_offset)
    except scan.CutShort:
        found = None  # a closed segment that lost its tail
    if found is None:
        return size
    position = found[0].position
    segment.cache.remember(limit_offset, position)
    return position


class LogSlice:
    """Batches to be read from a log, bound to an open file, so they can be read after the segment is deleted.

    `size` is exact unless the slice is cold; then it is the most that will be read (a larger first batch excepted). If
    the log was truncated or compacted in between, no bytes are returned, and the caller reads again. `offset` is the
    one that is read from; all bytes are of `segment`, and below `limit_offset`.
    """

    __slots__ = ("_file", "_limit_offset", "_offset", "_segment", "_span", "cuts", "look_up", "segments", "size")

    def __init__(
        self,
        segments: SegmentList,
        offset: int,
        limit_offset: int,
        segment: Segment | None,
        span: Span | None,
        size: int,
        file: DiskFile | None = None,
        look_up: Callable[[bool], tuple[Segment, Span] | None] | None = None,
    ) -> None:
        self.segments = segments
        self.cuts = segments.cuts
        self._offset, self._limit_offset = offset, limit_offset
        self._segment = segment
        self._file = file
        self._span = span
        self.look_up = look_up
        self.size = size

    def __len__(self) -> int:
        return self.size

    @property
    def is_cold(self) -> bool:
        """Whether the bytes are not yet found, which only `load` does."""
        return self._span is None

    def load_nowait(self) -> memoryview | None:
        """Return the batches if they are in memory; None if `load` has to be called in a thread."""
        span = self._span
        if span is None:
            return None
        if span.size == 0 or self._file is None:
            return EMPTY
        data = span.data
        if data is None:
            data = self._file.read_nowait(span.size, span.position)
        return data if self.segments.cuts == self.cuts else EMPTY

    def in_file(self) -> FilePart | None:
        """Return the batches where they are, if these are many and in memory, to be sent from there."""
        span, file = self._span, self._file
        if span is None or file is None or span.size < FILE_BYTES_MIN or self.segments.cuts != self.cuts:
            return None
        descriptor = file.sendable(span.size, span.position)
        return None if descriptor is None else FilePart(self.segments, file, descriptor, span.position, span.size)

    def load(self) -> memoryview:
        """Return the batches, waiting for the disk. Safe in a thread while the log is appended to."""
        try:
            if self._span is None:
                self._find(warms=False)
            span = self._span
            if self._file is None or span is None or span.size == 0:
                return EMPTY
            data = span.data
            if data is None:
                data = memoryview(self._file.read_at(span.size, span.position))
        except FileNotFoundError:
            return EMPTY  # removed by retention meanwhile
        except CorruptData as error:
            if self.segments.cuts != self.cuts:
                return EMPTY
            raise StorageError(f"reading a segment: {error}") from error
        return data if self.segments.cuts == self.cuts else EMPTY

    def warm(self) -> None:
        """Find the batches, and wait until they are in memory: `in_file` or `load_nowait` then has them. Few are read
        at once, and so are all where nothing tells what is in memory. Safe in a thread, as `load` is."""
        try:
            if self._span is None:
                self._find(warms=True)
                return
            span, file = self._span, self._file
            if file is None or span.size == 0:
                return
            if span.size < FILE_BYTES_MIN or not file.warm(span.size, span.position):
                self._span = span._replace(data=memoryview(file.read_at(span.size, span.position)))
        except FileNotFoundError:
            self._span, self.size = NOTHING, 0  # removed by retention meanwhile
        except CorruptData as error:
            if self.segments.cuts == self.cuts:
                raise StorageError(f"reading a segment: {error}") from error
            self._span, self.size = NOTHING, 0

    def _find(self, *, warms: bool) -> None:
        found = self.look_up(warms) if self.look_up is not None else None
        if found is None:
            self._span, self.size = NOTHING, 0
            return
        self._segment, self._span = found
        self._file = self._segment.log_file()
        self.size = self._span.size

    def aborted(self) -> list[AbortedTxn] | None:
        """The aborted transactions that touch the loaded batches, and few others; None if the log was cut meanwhile,
        which may have taken them away. Only for the log's own thread."""
        if self.segments.cuts != self.cuts:
            return None
        if self._segment is None or self._span is None:
            return []
        # Only as far as these batches reach: a list to the log's end in each of its answers is of quadratic length.
        behind = self._segment.offset_behind(self._span.position + self._span.size)
        if behind is None:
            behind = self.segments.end_of(self.segments.number_of(self._segment.base_offset), self._limit_offset)
        return self.segments.aborted_between(self._offset, min(behind, self._limit_offset))


LostTail = Callable[[Segment, int, Exception], None]
"""Called for a closed segment that ends inside a batch, with the first missing offset and the error."""


def find(
    segments: SegmentList,
    offset: int,
    max_bytes: int,
    limit_offset: int,
    min_one: bool,
    whole: bool,
    log_end: int,
    interval: int,
    lost_tail: LostTail,
) -> LogSlice:
    """Find batches from the one that holds `offset` on, all below `limit_offset`, in one segment.

    At most `max_bytes`, of which the end may be an incomplete batch, but never the first; with `min_one` at least one
    batch, if there is one below the limit; with `whole` only whole ones, where they are large. If a closed segment has
    lost its tail, the search goes on in the next one. `interval` is index.interval.bytes. Raises StorageError for
    damaged data.
    """
    row, active = segments.all, segments.active
    number = segments.number_of(offset) if offset < limit_offset else len(row)
    while number < len(row):
        segment = row[number]
        end = log_end if segment is active else row[number + 1].base_offset
        try:
            if segment is not active:
                segments.open_segments.touch(segment)
                if not segment.indexes_loaded:
                    bounds = ReadBounds(offset, max_bytes, limit_offset, min_one, whole)
                    return ColdLookup(segments, number, bounds, log_end, interval, lost_tail).slice()
            file = segment.log_file()
            limit = None if limit_offset >= end else limit_offset
            span = locate(segment, segment.size, file.read_nowait, offset, max_bytes, limit, min_one, whole)
            if span is not None:
                return LogSlice(segments, offset, limit_offset, segment, span, span.size, file)
        except scan.NotCached:
            bounds = ReadBounds(offset, max_bytes, limit_offset, min_one, whole)
            return ColdLookup(segments, number, bounds, log_end, interval, lost_tail).slice()
        except scan.CutShort as error:
            if segment is active:
                raise StorageError(f"{segment.path(layout.LOG)}: {error}") from error
            lost_tail(segment, offset, error)
        except (CorruptData, FileNotFoundError) as error:
            raise StorageError(f"{segment.path(layout.LOG)}: {error}") from error
        number += 1
    return LogSlice(segments, offset, limit_offset, None, NOTHING, 0)


class ColdLookup:
    """A look-up to be done later in a thread, in the segments as they are now; the arguments are those of `find`."""

    def __init__(
        self,
        segments: SegmentList,
        number: int,
        bounds: ReadBounds,
        log_end: int,
        interval: int,
        lost_tail: LostTail,
    ) -> None:
        first = segments[number]
        first.log_file()  # opened now, so that retention cannot take it away
        self._first = first.reader()
        self._behind = segments.all[number + 1 :]
        self.segments, self.cuts = segments, segments.cuts
        self._active_size = segments.active.size
        self.bounds, self._log_end, self._interval, self.lost_tail = bounds, log_end, interval, lost_tail

    def slice(self) -> LogSlice:
        """Return a slice whose `load` does this look-up."""
        bounds, most = self.bounds, min(self.bounds.max_bytes, self._first.size)
        limit = self._log_end if bounds.limit_offset is None else bounds.limit_offset
        return LogSlice(self.segments, bounds.offset, limit, None, None, most, look_up=self.look_up)

    def look_up(self, warms: bool) -> tuple[Segment, Span] | None:
        """Find the segment and the bytes in it; None if there are none, or the log was cut meanwhile.

        The bytes are read by the way, or with `warms` only brought into memory.
        """
        bounds, behind = self.bounds, self._behind
        limit = bounds.limit_offset
        reader, size = self._first, self._first.size
        for at in range(len(behind) + 1):
            if at:
                size = self._active_size if at == len(behind) else behind[at - 1].size
                reader = behind[at - 1].reader()
                if self.segments.cuts != self.cuts:
                    return None  # otherwise the reader would show the segment after the cut
            index_builder.load_reader(reader, self._interval)
            reaches = behind[at].base_offset if at < len(behind) else self._log_end
            question = bounds if limit is None or limit < reaches else bounds._replace(limit_offset=None)
            try:
                window: read_window.Window | None = None
                read: scan.Read = reader.read
                if not warms or not read_window.is_warmed(reader, size, bounds.offset, bounds.max_bytes):
                    window = read_window.window_of(reader, size, bounds.offset, bounds.max_bytes)
                    read = window.read
                span = locate(reader, size, read, *question)
            except scan.CutShort as error:
                if at == len(behind) or self.segments.cuts != self.cuts:
                    raise
                self.lost_tail(reader, bounds.offset, error)
                continue
            if span is not None:
                data = None if window is None else window.part(span.size, span.position)
                return reader, span if data is None else span._replace(data=data)
        return None
