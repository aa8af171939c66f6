"""Scanning the batches of a log file: whole batches (recovery, rebuilding), or only their positions (reading)."""

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from logyard.broker.errors import CorruptData
from logyard.broker.log.disk.port import DiskFile
from logyard.broker.records.batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, parse_header

CHUNK = 1 << 20
GLANCE = 4096

# Base offset, length, magic, last offset delta: enough to find a batch.
_GLANCE = struct.Struct(">qi4xb6xi")

Read = Callable[[int, int], bytes | memoryview | None]
"""(size, position) → bytes, or None if reading might wait."""


class CutShort(CorruptData):
    """The bytes end inside a batch."""


class NotCached(Exception):
    """The bytes are not in memory: repeat the look-up in a thread, where waiting is allowed."""


class Scanned(NamedTuple):
    """A whole batch and its position in the file."""

    position: int
    header: BatchHeader
    data: memoryview


class Place(NamedTuple):
    """A batch's position and offsets (for old compressed messages base_offset is the last one's)."""

    position: int
    size: int
    base_offset: int
    last_offset: int


def batches(file: DiskFile, start: int, end: int) -> Iterator[Scanned]:
    """Yield every batch between two positions; its framing is checked, its CRC is not.

    Raises CorruptData at the first bytes that are no whole batch; batches yielded before are valid.
    """
    position = start
    while position < end:
        chunk = memoryview(file.read_at(min(CHUNK, end - position), position))
        at = 0
        while at < len(chunk):
            header = _header_in(chunk, at)
            if header is None or at + header.length > len(chunk):
                break
            yield Scanned(position + at, header, chunk[at : at + header.length])
            at += header.length
        if at == 0:
            whole = _whole_batch(file, chunk, position, end)
            yield whole
            at = whole.header.length
        position += at


def _header_in(chunk: memoryview, at: int) -> BatchHeader | None:
    """Parse the header if the chunk holds all of it."""
    try:
        return parse_header(chunk, at)
    except CorruptData:
        # At the chunk's end it may only be incomplete; the next chunk starts here and will tell.
        if at == 0:
            raise
        return None


def _whole_batch(file: DiskFile, chunk: memoryview, position: int, end: int) -> Scanned:
    """Read a batch that is larger than a chunk."""
    header = parse_header(chunk)
    if position + header.length > end:
        raise CorruptData(f"batch at {position}: its {header.length} bytes go past the end at {end}")
    data = memoryview(file.read_at(header.length, position))
    if len(data) != header.length:
        raise CorruptData(f"batch at {position}: only {len(data)} of {header.length} bytes are there")
    return Scanned(position, header, data)


def places(read: Read, start: int, end: int) -> Iterator[Place]:
    """Yield the positions of the batches between two positions, reading little more than their headers.

    Raises NotCached if `read` returns None, CorruptData for bytes that are no batch, CutShort if they end inside one.
    """
    position, chunk, chunk_at = start, memoryview(b""), start
    while position < end:
        at = position - chunk_at
        if at + _GLANCE.size > len(chunk):
            chunk, chunk_at, at = _glance(read, position, end), position, 0
        if len(chunk) - at < _GLANCE.size:
            raise CutShort(f"batch at {position}: {len(chunk) - at} bytes are too few for a header")
        base_offset, length, magic, delta = _GLANCE.unpack_from(chunk, at)
        size = length + LOG_OVERHEAD
        if size < _GLANCE.size or not 0 <= magic <= 2 or (magic == 2 and delta < 0):
            raise CorruptData(f"batch at {position}: length {length}, magic {magic}, last offset delta {delta}")
        if position + size > end:
            raise CutShort(f"batch at {position}: its {size} bytes go past the end at {end}")
        yield Place(position, size, base_offset, base_offset + delta if magic == 2 else base_offset)
        position += size


def headers(read: Read, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of the batches between two positions; the records are not read.

    Raises as `places` does.
    """
    position, chunk, chunk_at = start, memoryview(b""), start
    while position < end:
        at = position - chunk_at
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_at, at = _glance(read, position, end), position, 0
        try:
            header = parse_header(chunk, at)
        except CorruptData as error:
            if end - position < HEADER_SIZE:
                raise CutShort(str(error)) from error
            raise
        if position + header.length > end:
            raise CutShort(f"batch at {position}: its {header.length} bytes go past the end at {end}")
        yield position, header
        position += header.length


def _glance(read: Read, position: int, end: int) -> memoryview:
    found = read(min(GLANCE, end - position), position)
    if found is None:
        raise NotCached
    return memoryview(found)


def first_reaching(read: Read, start: int, end: int, offset: int) -> Place | None:
    """Return the first batch from `start` on whose last offset is at or above `offset`."""
    for place in places(read, start, end):
        if place.last_offset >= offset:
            return place
    return None


def boundary_within(read: Read, start: int, end: int, limit: int) -> tuple[int, int | None]:
    """Return the largest batch boundary ≤ `limit`, and the offset that follows it (None: unknown)."""
    boundary, next_offset = start, None
    try:
        for place in places(read, start, end):
            if place.position + place.size > limit:
                break
            boundary, next_offset = place.position + place.size, place.last_offset + 1
    except CutShort:
        if next_offset is None:
            raise
        return boundary, None  # no batch begins there
    return boundary, next_offset
