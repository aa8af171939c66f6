"""The first record of a segment that is not older than a timestamp (ListOffsets)."""

from collections.abc import Iterable
from typing import Any

from logyard.broker.errors import CorruptData
from logyard.broker.log.segment import scan
from logyard.broker.log.segment.segment import Segment
from logyard.broker.records.batch import BatchHeader
from logyard.broker.records.header import COMPRESSION_BITS, LOG_APPEND_TIME_BIT
from logyard.broker.records.legacy import iter_legacy
from logyard.broker.records.reader import REFUSED_BY_C, WINDOW_BYTES, outlines, plain_window

# What may be looked at without a thread: a client chooses the size of its batches and of the index's steps.
LITTLE_BYTES = 16 << 10
LITTLE_RECORDS = 100
# How much of that is read at a time: mostly all batches behind one entry of the index, and the whole of what is found.
LITTLE_GLANCE = 8 << 10


def first_in_segment(segment: Segment, timestamp: int, log_start: int) -> tuple[int, int] | None:
    """Return (timestamp, offset) of the first record at or above `log_start` whose timestamp is at least `timestamp`.

    Waits for the disk if the bytes are not cached; raises CorruptData if a batch does not parse.
    """
    return _first(segment.read, _start(segment, timestamp), segment.size, timestamp, log_start, little=False)


def first_nowait(segment: Segment, timestamp: int, log_start: int) -> tuple[int, int]:
    """As `first_in_segment`, without waiting; raises scan.NotCached where a thread has to look instead.

    That is where bytes are not in memory, where there is more to look at than the event loop has time for, and where
    nothing is found.
    """
    indexes = segment.cache.indexes
    if indexes is None:
        raise scan.NotCached
    index, times = indexes
    start = index.floor(times.floor(timestamp))
    end = min(segment.size, start + LITTLE_BYTES)
    try:
        found = _first(segment.log_file().read_nowait, start, end, timestamp, log_start, little=True)
    except scan.CutShort:
        raise scan.NotCached from None  # by this end
    if found is None:
        raise scan.NotCached
    return found


def _start(segment: Segment, timestamp: int) -> int:
    index, times = segment.load_indexes()
    return index.floor(times.floor(timestamp))


def _first(
    read: scan.Read, start: int, end: int, timestamp: int, log_start: int, *, little: bool
) -> tuple[int, int] | None:
    glance = LITTLE_GLANCE if little else scan.GLANCE
    while True:
        found = scan.first_as_late(read, start, end, timestamp, log_start, old_formats=not little, glance=glance)
        if found is None:
            return None
        position, header, data = found
        length, attributes = header.length, header.attributes
        if attributes & LOG_APPEND_TIME_BIT and header.magic >= 2:
            # All records have the batch's timestamp, so they need not be read.
            return header.max_timestamp, max(header.base_offset, log_start)
        if little and (attributes & COMPRESSION_BITS or header.count > LITTLE_RECORDS):
            raise scan.NotCached
        if len(data) < length:
            data = _whole(read, position, header)
        record = _first_in_batch(data, header, timestamp, log_start)
        if record is not None:
            return record
        start = position + length


def _whole(read: scan.Read, position: int, header: BatchHeader) -> memoryview:
    data = read(header.length, position)
    if data is None:
        raise scan.NotCached
    if len(data) < header.length:
        raise CorruptData(f"batch at {position}: only {len(data)} of its {header.length} bytes are there")
    return memoryview(data)


def _first_in_batch(batch: memoryview, header: BatchHeader, timestamp: int, log_start: int) -> tuple[int, int] | None:
    if header.magic < 2:
        return _first_of(iter_legacy(batch), timestamp, log_start)
    if header.count <= LITTLE_RECORDS and header.length <= WINDOW_BYTES and not header.attributes & COMPRESSION_BITS:
        try:
            return _first_of(plain_window(batch), timestamp, log_start)
        except REFUSED_BY_C:
            pass  # read again in Python, which decides
    return _first_of(outlines(batch, header), timestamp, log_start)


def _first_of(records: Iterable[Any], timestamp: int, log_start: int) -> tuple[int, int] | None:
    for record in records:
        if record.timestamp >= timestamp and record.offset >= log_start:
            return record.timestamp, record.offset
    return None
