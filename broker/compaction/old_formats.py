"""Messages of magic 0 and 1 in a compaction: each is a batch of one record, or of all records in a wrapper.

Rule 1: a message is decompressed once, to complete its header with first offset, last offset and count, as in a v2
batch. All other rules use that header.
Rule 2: a wrapper that loses messages keeps magic, codec, timestamp type and the offsets of the remaining ones. Its own
offset is that of its last message, so it may end earlier than before (`rewrite.end_placeholder`).
Rule 3: the formats have no delete horizon: a tombstone is removed by the age of its segment's file (`expired_offsets`).
Source: facts §13; KIP-31, KIP-32, KIP-57.
"""

from collections.abc import Iterable, Iterator

from logyard.broker.compaction.ranges import SegmentRange
from logyard.broker.records import decode
from logyard.broker.records.header import LOG_APPEND_TIME_BIT, BatchHeader, TimestampType
from logyard.broker.records.legacy import measured, ordered
from logyard.broker.records.message_set import wrapper

OLDEST_WITH_HORIZON = 2


class OddOffsets(Exception):
    """Records of a batch are not where the batch is.

    Leaders take what a client has written there in uncompressed batches, as Kafka's do. A record far above its place
    would supersede all that come, so it supersedes nothing, nor do those behind it, and its batch stays as it is.
    """


def completed(header: BatchHeader, batch: memoryview) -> BatchHeader:
    """Return the header with first offset, last offset delta and count as a v2 batch has them; raises CorruptData."""
    return header if header.magic >= OLDEST_WITH_HORIZON else measured(header, batch)


def keys(batch: memoryview, header: BatchHeader) -> Iterator[tuple[int, bytes | None, bool]]:
    """Yield offset, key and whether there is a value, of each record of a batch of any format.

    Raises CorruptData, and OddOffsets at the first record whose offset is not above the one before, or not its batch's.
    """
    if header.magic >= OLDEST_WITH_HORIZON:
        before, last = header.base_offset - 1, header.last_offset
        for offset, key, has_value in decode.keys(batch, header):
            if not before < offset <= last:
                raise OddOffsets
            before = offset
            yield offset, key, has_value
        return
    for record in ordered(header, batch):
        yield record.offset, record.key, record.value is not None


def filtered(batch: memoryview, header: BatchHeader, offsets: Iterable[int]) -> tuple[bytes, int]:
    """Return a wrapper with only the messages at these offsets, and their number; (b"", 0) if none stays."""
    wanted = set(offsets)
    kept = [r for r in ordered(header, batch) if r.offset in wanted]
    if not kept:
        return b"", 0
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    time_bit = LOG_APPEND_TIME_BIT if is_append_time else 0
    timestamp = header.max_timestamp if is_append_time else None
    return wrapper(kept, header.compression, header.magic, time_bit, timestamp), len(kept)


def expired_offsets(
    segments: Iterable[tuple[SegmentRange, int]], clean_offset: int, delete_retention_ms: int
) -> tuple[tuple[int, int], ...]:
    """Return (first offset, last offset) of the segments whose old tombstones may be removed.

    As in Kafka these are the segments whose file was changed more than `delete_retention_ms` before the file of the
    last cleaned segment. A swap keeps a file's modification time.

    :param segments: each with its log file's modification time in ms, in order of offsets.
    """
    every = list(segments)
    cleaned = [modified for segment, modified in every if segment.base_offset < clean_offset]
    if not cleaned:
        return ()
    horizon = cleaned[-1] - delete_retention_ms
    return tuple((s.base_offset, s.last_offset) for s, modified in every if modified <= horizon)
