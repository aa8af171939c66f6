"""The first record of a segment that is not older than a timestamp (ListOffsets)."""

from logyard.broker.log.segment import scan
from logyard.broker.log.segment.segment import Segment
from logyard.broker.records.batch import BatchHeader, TimestampType, iter_records
from logyard.broker.records.legacy import iter_legacy


def first_in_segment(segment: Segment, timestamp: int, log_start: int) -> tuple[int, int] | None:
    """Return (timestamp, offset) of the first record at or above `log_start` whose timestamp is at least `timestamp`.

    Waits for the disk if the bytes are not cached; raises CorruptData if a batch does not parse.
    """
    position = segment.index.floor(segment.time_index.floor(timestamp))
    for at, header in scan.headers(segment.read, position, segment.size):
        if header.max_timestamp >= timestamp and header.last_offset >= log_start:
            found = _first_in_batch(segment, at, header, timestamp, log_start)
            if found is not None:
                return found
    return None


def _first_in_batch(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, log_start: int
) -> tuple[int, int] | None:
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME and header.magic >= 2:
        # All records have the batch's timestamp, so they need not be read.
        return header.max_timestamp, max(header.base_offset, log_start)
    batch = segment.read(header.length, position)
    for record in iter_records(batch) if header.magic >= 2 else iter_legacy(batch):
        if record.timestamp >= timestamp and record.offset >= log_start:
            return record.timestamp, record.offset
    return None
