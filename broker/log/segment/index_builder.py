"""Indexes made again from a segment's batches, and a look at index files that tells whether that is needed."""

from contextlib import suppress

from logyard.broker.errors import CorruptData
from logyard.broker.log import layout
from logyard.broker.log.segment import scan
from logyard.broker.log.segment.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, decode_last_time_entry
from logyard.broker.log.segment.segment import Segment
from logyard.broker.records.batch import HEADER_SIZE, BatchHeader, parse_header


class BatchIndexer:
    """Fills a segment's indexes batch by batch: an entry whenever more than `interval` bytes lie behind the last.

    An append on a live log indexes call by call instead, so files of replicas may differ (facts §12).
    """

    __slots__ = ("_indexed_to", "_interval", "_segment")

    def __init__(self, segment: Segment, interval: int) -> None:
        segment.reset_indexes()
        self._segment = segment
        self._interval = interval
        self._indexed_to = 0

    def add(self, position: int, header: BatchHeader) -> None:
        """Note the batch at `position`: the next one of the segment."""
        segment = self._segment
        if position == 0:
            segment.first_timestamp = header.max_timestamp
        if header.max_timestamp > segment.max_timestamp:
            segment.max_timestamp, segment.max_timestamp_offset = header.max_timestamp, header.last_offset
        if position - self._indexed_to > self._interval:
            segment.index.append(header.last_offset, position)
            segment.time_index.maybe_append(segment.max_timestamp, segment.max_timestamp_offset)
            self._indexed_to = position
        segment.bytes_since_index = position + header.length - self._indexed_to

    def close(self) -> None:
        """Give the time index its last entry."""
        self._segment.time_index.maybe_append(self._segment.max_timestamp, self._segment.max_timestamp_offset)


def rebuild(segment: Segment, interval: int) -> None:
    """Make a sealed segment's offset and time index again, and sync them; raises CorruptData on a broken frame."""
    _index(segment, interval)
    for file in segment.write_indexes():
        file.sync()
    segment.release()


def load(segment: Segment, interval: int) -> None:
    """Have a segment's indexes loaded, made again where the files are damaged; for the thread that owns its log."""
    try:
        segment.load_indexes()
    except (CorruptData, FileNotFoundError):
        rebuild(segment, interval)
        segment.load_indexes()


def look_into(reader: Segment, interval: int) -> None:
    """As `load`, for a reader in any thread: its files are left to who owns the log (`Segment.settle_mended`).

    Raises CorruptData on a broken frame, FileNotFoundError where the log is gone.
    """
    try:
        reader.load_indexes()
    except (CorruptData, FileNotFoundError):
        known, other = reader.known, reader.reader()
        _index(other, interval)
        known.indexes, known.is_mended = other.load_indexes(), True


def _index(segment: Segment, interval: int) -> None:
    indexer = BatchIndexer(segment, interval)
    with suppress(scan.CutShort):  # it lost its tail: what is sound is read
        for position, header in scan.headers(segment.read, 0, segment.size):
            indexer.add(position, header)
    indexer.close()


def glance(segment: Segment) -> None:
    """Check sizes and last entries of both index files without reading them, and take the largest timestamp.

    Raises CorruptData or FileNotFoundError where they have to be rebuilt.
    """
    positions = segment.disk.open(segment.path(layout.INDEX))
    size = positions.size()
    if size % OFFSET_ENTRY_SIZE:
        raise CorruptData(f"{size} bytes of offset index")
    if size:
        entry = positions.read_at(OFFSET_ENTRY_SIZE, size - OFFSET_ENTRY_SIZE)
        relative, position = int.from_bytes(entry[:4], "big"), int.from_bytes(entry[4:], "big")
        if relative == 0 or position >= segment.size:
            raise CorruptData(f"last offset index entry: {relative} at {position} of {segment.size}")
    times = segment.disk.open(segment.path(layout.TIME_INDEX))
    size = times.size()
    if size % TIME_ENTRY_SIZE or (size == 0 and segment.size > 0 and not _is_timeless(segment)):
        raise CorruptData(f"{size} bytes of time index")
    if size:
        entry = times.read_at(TIME_ENTRY_SIZE, size - TIME_ENTRY_SIZE)
        segment.max_timestamp, segment.max_timestamp_offset = decode_last_time_entry(segment.base_offset, entry)
        if segment.max_timestamp_offset < segment.base_offset:
            raise CorruptData(f"last time index entry: offset {segment.max_timestamp_offset}")


def _is_timeless(segment: Segment) -> bool:
    """Whether the first batch has no timestamp, as in the oldest format: an empty time index is in order then."""
    first = segment.disk.open(segment.path(layout.LOG)).read_at(HEADER_SIZE, 0)
    return parse_header(first).max_timestamp < 0
