"""The first record of a segment that is not older than a timestamp (ListOffsets)."""

from collections.abc import Iterator

from logyard.broker.log.segment import scan
from logyard.broker.log.segment.segment import Segment
from logyard.broker.records.batch import BatchHeader, TimestampType, iter_records
from logyard.broker.records.legacy import iter_legacy

# What may be looked at without a thread: a client chooses the size of its batches and of the index's steps.
LITTLE_BYTES = 16 << 10
LITTLE_RECORDS = 100


def first_in_segment(segment: Segment, timestamp: int, log_start: int) -> tuple[int, int] | None:
    """Return (timestamp, offset) of the first record at or above `log_start` whose timestamp is at least `timestamp`.

    Waits for the disk if the bytes are not cached; raises CorruptData if a batch does not parse.
    """
    found = scan.headers(segment.read, _start(segment, timestamp), segment.size)
    return _first(segment.read, found, timestamp, log_start)


def first_nowait(segment: Segment, timestamp: int, log_start: int) -> tuple[int, int] | None:
    """As `first_in_segment`, without waiting; raises scan.NotCached where a thread has to look instead.

    That is where bytes are not in memory, and where there is more to look at than the event loop has time for.
    """
    if not segment.indexes_loaded:
        raise scan.NotCached
    start = _start(segment, timestamp)
    few = _few(scan.headers(segment.read_nowait, start, segment.size), start)
    return _first(segment.read_nowait, few, timestamp, log_start)


def _few(found: Iterator[tuple[int, BatchHeader]], start: int) -> Iterator[tuple[int, BatchHeader]]:
    for position, header in found:
        packed = header.magic < 2 or header.compression or header.count > LITTLE_RECORDS
        if packed or position + header.length - start > LITTLE_BYTES:
            raise scan.NotCached
        yield position, header


def _start(segment: Segment, timestamp: int) -> int:
    return segment.index.floor(segment.time_index.floor(timestamp))


def _first(
    read: scan.Read, found: Iterator[tuple[int, BatchHeader]], timestamp: int, log_start: int
) -> tuple[int, int] | None:
    for position, header in found:
        if header.max_timestamp >= timestamp and header.last_offset >= log_start:
            record = _first_in_batch(read, position, header, timestamp, log_start)
            if record is not None:
                return record
    return None


def _first_in_batch(
    read: scan.Read, position: int, header: BatchHeader, timestamp: int, log_start: int
) -> tuple[int, int] | None:
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME and header.magic >= 2:
        # All records have the batch's timestamp, so they need not be read.
        return header.max_timestamp, max(header.base_offset, log_start)
    batch = read(header.length, position)
    if batch is None:
        raise scan.NotCached
    for record in iter_records(batch) if header.magic >= 2 else iter_legacy(batch):
        if record.timestamp >= timestamp and record.offset >= log_start:
            return record.timestamp, record.offset
    return None
