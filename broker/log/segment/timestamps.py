"""The first record of a segment that is not older than a timestamp (ListOffsets)."""

from collections.abc import Iterable
from typing import Any

from logyard.broker.errors import CorruptData
from logyard.broker.log.segment import scan
from logyard.broker.log.segment.segment import Segment
from logyard.broker.records.batch import BatchHeader
from logyard.broker.records.header import LOG_APPEND_TIME_BIT
from logyard.broker.records.legacy import iter_legacy
from logyard.broker.records.reader import REFUSED_BY_C, WINDOW_BYTES, one_window, outlines

# What may be looked at without a thread: a client chooses the size of its batches and of the index's steps.
LITTLE_BYTES = 16 << 10
LITTLE_RECORDS = 100


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
    if not segment.indexes_loaded:
        raise scan.NotCached
    start = _start(segment, timestamp)
    end = min(segment.size, start + LITTLE_BYTES)
    try:
        found = _first(segment.read_nowait, start, end, timestamp, log_start, little=True)
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
    found = scan.first_as_late(read, start, end, timestamp, log_start, old_formats=not little)
    while found is not None:
        position, header, data = found
        if header.magic >= 2 and header.attributes & LOG_APPEND_TIME_BIT:
            # All records have the batch's timestamp, so they need not be read.
            return header.max_timestamp, max(header.base_offset, log_start)
        if little and (header.compression or header.count > LITTLE_RECORDS):
            raise scan.NotCached
        if len(data) < header.length:
            data = _whole(read, position, header)
        record = _first_in_batch(data, header, timestamp, log_start)
        if record is not None:
            return record
        found = scan.first_as_late(read, position + header.length, end, timestamp, log_start, old_formats=not little)
    return None


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
    if not header.compression and header.count <= LITTLE_RECORDS and header.length <= WINDOW_BYTES:
        try:
            return _first_of(one_window(batch, header), timestamp, log_start)
        except REFUSED_BY_C:
            pass  # read again in Python, which decides
    return _first_of(outlines(batch, header), timestamp, log_start)


def _first_of(records: Iterable[Any], timestamp: int, log_start: int) -> tuple[int, int] | None:
    for record in records:
        if record.timestamp >= timestamp and record.offset >= log_start:
            return record.timestamp, record.offset
    return None
