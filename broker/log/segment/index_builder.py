"""Indexes rebuilt from a segment's batches, and the check of index files that tells whether that is needed."""

from contextlib import suppress

from logyard.broker.errors import CorruptData
from logyard.broker.log import layout
from logyard.broker.log.segment import scan
from logyard.broker.log.segment.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, decode_last_time_entry
from logyard.broker.log.segment.segment import Segment
from logyard.broker.records.batch import HEADER_SIZE, BatchHeader, parse_header


class BatchIndexer:
    """Fills a segment's indexes batch by batch: an entry whenever more than `interval` bytes follow the last one.

    Appends to a live log are indexed call by call instead, so the index files of replicas may differ (facts §12).
    """

    __slots__ = ("_indexed_to", "_interval", "_segment")

    def __init__(self, segment: Segment, interval: int) -> None:
        segment.reset_indexes()
        self._segment = segment
        self._interval = interval
        self._indexed_to = 0

    def add(self, position: int, header: BatchHeader) -> None:
        """Index the segment's next batch, which is at `position`."""
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
        """Add the last entry of the time index."""
        self._segment.time_index.maybe_append(self._segment.max_timestamp, self._segment.max_timestamp_offset)


def rebuild(segment: Segment, interval: int) -> None:
    """Rebuild and sync a sealed segment's offset and time index; raises CorruptData for a broken frame."""
    _index(segment, interval)
    for file in segment.write_indexes():
        file.sync()
    segment.release()


def load(segment: Segment, interval: int) -> None:
    """Load a segment's indexes, rebuilt if the files are damaged; for the thread that owns its log."""
    try:
        segment.load_indexes()
    except (CorruptData, FileNotFoundError):
        rebuild(segment, interval)
        segment.load_indexes()


def load_reader(reader: Segment, interval: int) -> None:
    """As `load`, for a reader in any thread: only the log's owner replaces the files (`Segment.settle_mended`).

    Raises CorruptData for a broken frame, FileNotFoundError if the log file is gone.
    """
    try:
        reader.load_indexes()
    except (CorruptData, FileNotFoundError):
        known, other = reader.cache, reader.reader()
        _index(other, interval)
        known.indexes, known.is_mended = other.load_indexes(), True


def _index(segment: Segment, interval: int) -> None:
    indexer = BatchIndexer(segment, interval)
    with suppress(scan.CutShort):  # if it lost its tail, the valid part is indexed
        for position, header in scan.headers(segment.read, 0, segment.size):
            indexer.add(position, header)
    indexer.close()


def glance(segment: Segment, *, after_power_loss: bool = False) -> None:
    """Check sizes and last entries of both index files without reading them whole, and read the largest timestamp.

    `after_power_loss`: they may have their size and none of their bytes. Raises CorruptData or FileNotFoundError if
    they have to be rebuilt.
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
        if after_power_loss and not any(entry):
            # As a timestamp it is 1970, and retention would delete the segment.
            raise CorruptData("last time index entry: zeros")
        segment.max_timestamp, segment.max_timestamp_offset = decode_last_time_entry(segment.base_offset, entry)
        if segment.max_timestamp_offset < segment.base_offset:
            raise CorruptData(f"last time index entry: offset {segment.max_timestamp_offset}")


def _is_timeless(segment: Segment) -> bool:
    """Whether the first batch has no timestamp, as in the oldest format: an empty time index is right then."""
    first = segment.disk.open(segment.path(layout.LOG)).read_at(HEADER_SIZE, 0)
    return parse_header(first).max_timestamp < 0
