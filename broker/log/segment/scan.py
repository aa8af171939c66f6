"""Scanning the batches of a log file: whole batches (recovery, rebuilding), or only their positions (reading)."""

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from logyard.broker.errors import CorruptData
from logyard.broker.log.disk.port import DiskFile
from logyard.broker.records.batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, parse_header
from logyard.broker.records.header import HEADER, LEADER_EPOCH_AT, LENGTH_AT, MAGIC_AT

CHUNK = 1 << 20
GLANCE = 4096

# Base offset, length, magic, last offset delta: enough to find a batch.
_GLANCE = struct.Struct(">qi4xb6xi")
_unpack = _GLANCE.unpack_from
# The least length of a batch, which does not count the offset and the length itself. An old message may be smaller by a
# byte: without key and value it ends where the last of the four fields does not yet.
_LENGTH_MIN = _GLANCE.size - LOG_OVERHEAD
_OLD_LENGTH_MIN = _LENGTH_MIN - 1
# Length, magic, largest timestamp: enough to pass a batch whose records are all older.
_unpack_late = struct.Struct(">8xi4xb18xq").unpack_from
_unpack_header = HEADER.unpack_from
_HEADER_LENGTH = HEADER_SIZE - LOG_OVERHEAD
_NOTHING = memoryview(b"")
# So many batches that are laid out alike are passed at once: fewer are as soon looked at one by one.
_ALIKE_MIN = 3
_new = tuple.__new__  # hot path: a NamedTuple's own is Python

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
    position, chunk, at, at_max = start, _NOTHING, 0, -1
    while position < end:
        if at > at_max:
            chunk, at = _header(read, position, end), 0
            at_max = len(chunk) - _GLANCE.size
        base_offset, length, magic, delta = _unpack(chunk, at)
        _check(position, length, magic, delta)
        size = length + LOG_OVERHEAD
        if position + size > end:
            raise _past_end(position, size, end)
        yield Place(position, size, base_offset, base_offset + delta if magic == 2 else base_offset)
        position += size
        at += size


def size_at(read: Read, position: int, end: int) -> int:
    """Return the size of the batch at that position. Raises as `places` does."""
    _, length, magic, delta = _unpack(_header(read, position, end))
    if magic != 2 or delta < 0 or length < _LENGTH_MIN:
        _check(position, length, magic, delta)
    size: int = length + LOG_OVERHEAD
    if position + size > end:
        raise _past_end(position, size, end)
    return size


def headers(read: Read, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of the batches between two positions; the records are not read.

    Raises as `places` does.
    """
    position, chunk, chunk_at = start, memoryview(b""), start
    while position < end:
        at = position - chunk_at
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_at, at = _glance(read, position, end), position, 0
        header = _parsed(chunk, at, position, end)
        if position + header.length > end:
            raise _past_end(position, header.length, end)
        yield position, header
        position += header.length


def _parsed(chunk: memoryview, at: int, position: int, end: int) -> BatchHeader:
    try:
        return parse_header(chunk, at)
    except CorruptData as error:
        if end - position < HEADER_SIZE:
            raise CutShort(str(error)) from error
        raise


def _glance(read: Read, position: int, end: int, size: int = GLANCE) -> memoryview:
    found = read(min(size, end - position), position)
    if found is None:
        raise NotCached
    return memoryview(found)


def first_reaching(read: Read, start: int, end: int, offset: int) -> tuple[Place, memoryview] | None:
    """Return the first batch from `start` on whose last offset is at or above `offset`, and what was read from its
    first byte on: a part of it, or also what follows. Raises as `places` does."""
    # Hot path, as are the next two: no object for each batch, and as few steps as can be for one that is passed.
    position = start
    while position < end:
        chunk, length = _header(read, position, end), 0
        at, at_max = _alike(chunk, offset), len(chunk) - _GLANCE.size
        while at <= at_max:
            base_offset, length, magic, delta = _unpack(chunk, at)
            if magic != 2 or delta < 0 or length < _LENGTH_MIN:
                _check(position + at, length, magic, delta)
                delta = 0  # an old message
            if base_offset + delta >= offset:
                position += at
                size = length + LOG_OVERHEAD
                if position + size > end:
                    raise _past_end(position, size, end)
                return _new(Place, (position, size, base_offset, base_offset + delta)), chunk[at:]
            at += length + LOG_OVERHEAD
        position += at
        if position > end:
            size = length + LOG_OVERHEAD
            raise _past_end(position - size, size, end)
    return None


def _alike(chunk: memoryview, offset: int) -> int:
    """Return the size of the first batches of a chunk that can be passed at once on the way to `offset`.

    Those of one producer are often laid out alike, with as many records and bytes each: all their fields are compared
    in one step. 0 if they are not, or too few for that.
    """
    base_offset, length, _, delta = _unpack(chunk)
    size = length + LOG_OVERHEAD
    if delta < 0 or length < _LENGTH_MIN:
        return 0
    count = min((offset - base_offset) // (delta + 1), (len(chunk) - _GLANCE.size) // size)
    if count < _ALIKE_MIN or chunk[size + LENGTH_AT : size + LEADER_EPOCH_AT] != chunk[LENGTH_AT:LEADER_EPOCH_AT]:
        return 0
    at = size * count
    if _fields_each(size, count)(chunk) != (length, 2, delta) * count:
        return 0
    # It begins a batch. Offsets increase, so that if it is not beyond the offset all before it are below.
    return at if _unpack(chunk, at)[0] <= offset else 0


@lru_cache(maxsize=256)
def _fields_each(size: int, count: int) -> Callable[[memoryview], tuple[int, ...]]:
    """Return what reads length, magic and last offset delta of so many batches of that size."""
    return struct.Struct(">" + f"8xi4xb6xi{size - _GLANCE.size}x" * count).unpack_from


def first_as_late(
    read: Read, start: int, end: int, timestamp: int, offset: int, *, old_formats: bool = True, glance: int = GLANCE
) -> Scanned | None:
    """Return the first batch from `start` on that reaches `offset` and whose largest timestamp is at least `timestamp`.

    Of its bytes only those that were read with the header, `glance` bytes at a time. Without `old_formats` messages of
    these raise NotCached: very many go into a few bytes. Otherwise raises as `places` does.
    """
    position = start
    while position < end:
        chunk, at, size = _glance(read, position, end, glance), 0, 0
        at_max = len(chunk) - HEADER_SIZE
        unpack = _unpack_late if at_max >= 0 else _unknown
        while at <= at_max or not at:
            length, magic, latest = unpack(chunk, at)
            if magic != 2 or length < _HEADER_LENGTH:
                header = _parsed(chunk, at, position + at, end)
                if not old_formats:
                    raise NotCached
                size = header.length
                is_found = header.max_timestamp >= timestamp and header.base_offset >= offset
            else:
                size = length + LOG_OVERHEAD
                if latest < timestamp:
                    at += size
                    continue
                # As `parse_header` does, whose checks are made: its call alone is a twentieth of a ListOffsets request.
                base_offset, _, *fields = _unpack_header(chunk, at)
                is_found = base_offset + fields[4] >= offset
                header = _new(BatchHeader, (base_offset, size, *fields))
            if is_found:
                if position + at + size > end:
                    raise _past_end(position + at, size, end)
                return _new(Scanned, (position + at, header, chunk[at : at + size]))
            at += size
        position += at
        if position > end:
            raise _past_end(position - size, size, end)
    return None


def _unknown(chunk: memoryview, at: int) -> tuple[int, int, int]:
    """What `_unpack_late` has to say of fewer bytes than a header: no magic number."""
    return 0, -1, 0


def _header(read: Read, position: int, end: int) -> memoryview:
    """Read at least the fields of `_GLANCE` of the batch at that position."""
    chunk = _glance(read, position, end)
    if len(chunk) >= _GLANCE.size:
        return chunk
    if len(chunk) == LOG_OVERHEAD + _OLD_LENGTH_MIN and chunk[MAGIC_AT] < 2:
        return memoryview(bytes(chunk) + b"\0")  # the smallest old message, at the end
    raise CutShort(f"batch at {position}: {len(chunk)} bytes are too few for a header")


def _check(position: int, length: int, magic: int, delta: int) -> None:
    if length < (_LENGTH_MIN if magic == 2 else _OLD_LENGTH_MIN) or not 0 <= magic <= 2 or (magic == 2 and delta < 0):
        raise CorruptData(f"batch at {position}: length {length}, magic {magic}, last offset delta {delta}")


def _past_end(position: int, size: int, end: int) -> CutShort:
    return CutShort(f"batch at {position}: its {size} bytes go past the end at {end}")
