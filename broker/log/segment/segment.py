"""One segment: a log file and its indexes.

Rule 1: an active segment keeps its indexes in memory and its index files preallocated; they are written when it is
sealed or closed. After a crash an active segment's indexes are rebuilt, so nothing is lost by that.
Rule 2: a sealed segment does not change any more; its indexes are loaded on first use.
Rule 3: an index entry is added per append call, when more than index.interval.bytes were appended since the last one,
before the new bytes are counted: (last offset of the call, position of its first byte) (facts §12).
Rule 4: only the thread that owns the log changes a segment. Other threads use a `reader`, and change only its cache.
"""

import zlib

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import CorruptData
from logyard.broker.log import layout
from logyard.broker.log.disk.port import Buffer, Disk, DiskFile, read_whole, write_whole
from logyard.broker.log.segment import scan
from logyard.broker.log.segment.cache import SegmentCache
from logyard.broker.log.segment.index import (
    OFFSET_ENTRY_SIZE,
    RELATIVE_OFFSET_MAX,
    TIME_ENTRY_SIZE,
    TXN_ENTRY_SIZE,
    AbortedTxn,
    OffsetIndex,
    TimeIndex,
    decode_aborted,
    encode_aborted,
    preallocated_size,
)
from logyard.broker.records.batch import HEADER_SIZE, parse_header


class Segment:
    """A segment of one partition's log; `size` counts bytes of the log file, offsets are absolute."""

    __slots__ = (
        "_aborted",
        "_entries_max",
        "aborted_written",
        "base_offset",
        "bytes_since_index",
        "cache",
        "created_ms",
        "directory",
        "disk",
        "file",
        "first_timestamp",
        "has_aborted",
        "is_index_full",
        "max_timestamp",
        "max_timestamp_offset",
        "size",
        "unsynced",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: int, *, size: int = 0, created_ms: int = 0) -> None:
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.created_ms = created_ms
        self.file: DiskFile | None = None
        self.first_timestamp = -1
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.bytes_since_index = 0
        self.has_aborted = False
        self.unsynced: list[DiskFile] = []
        self.cache = SegmentCache()  # until the segment is cut or released
        self._aborted: list[AbortedTxn] | None = None
        self.aborted_written = 0  # how many of them are known to be in the file
        self._entries_max = (0, 0)
        self.is_index_full = False

    def __repr__(self) -> str:
        return f"Segment({self.path(layout.LOG)}, {self.size} bytes)"

    # -- files ----------------------------------------------------------------------------------------------

    def path(self, kind: str, suffix: str = "") -> str:
        """Return the path of one of this segment's files."""
        return f"{self.directory}/{layout.file_name(self.base_offset, kind, suffix)}"

    def log_file(self) -> DiskFile:
        """Return the log file, opened for reading if it is not open."""
        file = self.file
        if file is None:
            file = self.file = self.disk.open(self.path(layout.LOG))
        return file

    def reader(self) -> "Segment":
        """Return a copy of the segment for a look-up in a thread, which opens and releases files of its own.

        The two share their `cache` until the segment is cut or released.
        """
        twin = Segment(self.disk, self.directory, self.base_offset, size=self.size, created_ms=self.created_ms)
        twin.file, twin.cache = self.file, self.cache
        twin.has_aborted, twin._aborted, twin.aborted_written = self.has_aborted, self._aborted, self.aborted_written
        return twin

    def activate(self, config: TopicConfig, suffix: str = "", former: bytes | None = None) -> None:
        """Open for appending, the indexes preallocated. Files are opened first: if one cannot be, nothing changes."""
        loaded = self.load_indexes()
        paths = [self.path(kind, suffix) for kind in layout.ALWAYS_THERE]
        log, *indexes = [self.disk.open(path, create=True, write=True) for path in paths]
        if former is not None:
            log.set_attribute(layout.FORMER, former)  # of a new file, before its first byte
        # A cache of its own, so that a thread that still reads the files does not add to it.
        self.cache = SegmentCache(loaded)
        # One entry of the time index is reserved for the entry that sealing adds.
        self._entries_max = (
            config.segment_index_bytes // OFFSET_ENTRY_SIZE,
            config.segment_index_bytes // TIME_ENTRY_SIZE - 1,
        )
        self._look_whether_full()
        self.file = log
        if config.preallocate:
            log.truncate(max(self.size, config.segment_bytes))
        for file, entry_size in zip(indexes, (OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE), strict=True):
            file.truncate(preallocated_size(config.segment_index_bytes, entry_size))

    def seal(self) -> None:
        """End appending: the log is trimmed to its size, the indexes get their last entry and are written.

        `unsynced` then has the files to sync before the recovery point may pass this segment.
        """
        log = self.log_file()
        log.truncate(self.size)
        if self.size:
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        # Closes first what a seal before, whose roll failed, has opened: descriptors may be what the roll lacked.
        self.unsynced = [file for file in self.unsynced if file.path.endswith(layout.TXN_INDEX)]
        self.unsynced = [log, *self.write_indexes(), *self.unsynced]

    def write_indexes(self, suffix: str = "") -> list[DiskFile]:
        """Write both index files, trimmed; returns them, not yet synced."""
        written = []
        for kind, data in ((layout.INDEX, self.index.encode()), (layout.TIME_INDEX, self.time_index.encode())):
            file = self.disk.open(self.path(kind, suffix), create=True, write=True)
            file.write_at(data, 0)
            file.truncate(len(data))
            written.append(file)
        return written

    # -- indexes --------------------------------------------------------------------------------------------

    @property
    def index(self) -> OffsetIndex:
        return self.load_indexes()[0]

    @property
    def time_index(self) -> TimeIndex:
        return self.load_indexes()[1]

    @property
    def aborted(self) -> list[AbortedTxn]:
        """The aborted transactions whose markers are in this segment. Raises DiskError, CorruptData."""
        if self._aborted is None:
            # What cannot be read is not remembered as "none": readers of committed records would see aborted ones, and
            # the next entry would be written over the first.
            data = read_whole(self.disk, self.path(layout.TXN_INDEX)) if self.has_aborted else b""
            self._aborted = decode_aborted(data)
            self.aborted_written = len(self._aborted)
        return self._aborted

    @property
    def indexes_loaded(self) -> bool:
        return self.cache.indexes is not None

    @property
    def index_size(self) -> int:
        """Bytes that the loaded indexes hold in memory."""
        indexes = self.cache.indexes
        return 0 if indexes is None else len(indexes[0]) * OFFSET_ENTRY_SIZE + len(indexes[1]) * TIME_ENTRY_SIZE

    def load_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Read both index files; raises CorruptData or FileNotFoundError if they have to be rebuilt.

        The log's own thread may release them meanwhile: the returned indexes stay valid.
        """
        known = self.cache
        indexes = known.indexes
        if indexes is None:
            times = TimeIndex.decode(self.base_offset, read_whole(self.disk, self.path(layout.TIME_INDEX)))
            index = OffsetIndex.decode(self.base_offset, read_whole(self.disk, self.path(layout.INDEX)))
            indexes = known.indexes = index, times
        return indexes

    def settle_mended(self) -> None:
        """Write rebuilt indexes over the damaged files, without a sync."""
        for kind, data in ((layout.INDEX, self.index.encode()), (layout.TIME_INDEX, self.time_index.encode())):
            write_whole(self.disk, self.path(kind), data, sync=False)
        self.cache.is_mended = False

    def reset_indexes(self) -> None:
        """Empty both indexes, timestamps included, before all batches are read again."""
        self.cache = SegmentCache((OffsetIndex(self.base_offset), TimeIndex(self.base_offset)))
        self.first_timestamp = self.max_timestamp = -1
        self.max_timestamp_offset = self.base_offset
        self.bytes_since_index = 0

    def release(self) -> None:
        """Close the log file and drop the indexes of a sealed segment; both are loaded again when needed."""
        self.file = None
        self.cache = SegmentCache()

    def note_aborted(self, entry: AbortedTxn) -> None:
        """Add an aborted transaction, to the file as well."""
        self.aborted.append(entry)
        self._write_aborted()

    def replace_aborted(self, entries: list[AbortedTxn], suffix: str = "") -> None:
        """Replace the aborted transactions; without any, the file is removed."""
        self._aborted, self.aborted_written = entries, 0
        if entries:
            self._write_aborted(suffix)
        elif self.has_aborted:
            path = self.path(layout.TXN_INDEX)
            self.disk.remove(path)
            self.unsynced = [file for file in self.unsynced if file.path != path]
            self.has_aborted = False

    def _write_aborted(self, suffix: str = "") -> None:
        assert self._aborted is not None
        file = self._open_aborted(suffix)
        # Only what the file does not have: it may have a million entries, and grows by one.
        file.write_at(encode_aborted(self._aborted[self.aborted_written :]), self.aborted_written * TXN_ENTRY_SIZE)
        file.truncate(len(self._aborted) * TXN_ENTRY_SIZE)
        self.aborted_written = len(self._aborted)
        self.has_aborted = True

    def _open_aborted(self, suffix: str = "") -> DiskFile:
        """Return the file of aborted transactions, open until it is synced."""
        path = self.path(layout.TXN_INDEX, suffix)
        for file in self.unsynced:
            if file.path == path:
                return file
        file = self.disk.open(path, create=True, write=True)
        self.unsynced.append(file)
        return file

    # -- appending ------------------------------------------------------------------------------------------

    def append(
        self,
        data: Buffer,
        first_offset: int,
        last_offset: int,
        max_timestamp: int,
        timestamp_offset: int,
        interval: int,
    ) -> None:
        """Write batches at the end and index them.

        `timestamp_offset` is the last offset of the batch with `max_timestamp`; `interval` is index.interval.bytes.
        """
        position = self.size
        size = len(data)
        assert self.file is not None
        self.file.write_at(data, position)
        self.size = position + size
        self.note_appended(position, size, first_offset, last_offset, max_timestamp, timestamp_offset, interval)

    def note_appended(
        self,
        position: int,
        size: int,
        first_offset: int,
        last_offset: int,
        max_timestamp: int,
        timestamp_offset: int,
        interval: int,
    ) -> None:
        """Account for bytes that are in the file: timestamps, index entries, cached positions."""
        if position == 0:
            self.first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = timestamp_offset
        known = self.cache
        if self.bytes_since_index > interval:
            self.index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
            self.bytes_since_index = 0
            self._look_whether_full()
        self.bytes_since_index += size
        known.remember(first_offset, position)

    def _look_whether_full(self) -> None:
        entries, time_entries = self._entries_max
        self.is_index_full = len(self.index) >= entries or len(self.time_index) >= time_entries

    def has_room(self, size: int, last_offset: int, max_timestamp: int, now_ms: int, config: TopicConfig) -> bool:
        """Whether batches of `size` bytes fit into this segment; otherwise a new one is needed.

        An empty segment takes all batches whose offsets differ from its base by at most 31 bits, as the indexes need
        it. Others are also limited in size, in index entries, and in age (`roll_ms` less its jitter).
        """
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return False
        if self.size == 0:
            return True
        if self.size + size > config.segment_bytes or self.is_index_full:
            return False
        limit = config.roll_ms
        if config.segment_jitter_ms:
            limit -= self._jitter_ms(config)
        if self.first_timestamp >= 0:
            return max_timestamp - self.first_timestamp <= limit
        return now_ms - self.created_ms <= limit

    def _jitter_ms(self, config: TopicConfig) -> int:
        """Return a number below segment.jitter.ms that is random per segment, but constant for one segment."""
        bound = min(config.segment_jitter_ms, config.segment_ms)
        return zlib.crc32(self.path(layout.LOG).encode()) % bound if bound > 0 else 0

    # -- finding --------------------------------------------------------------------------------------------

    def read(self, size: int, position: int) -> bytes:
        """Read from the log file; waits for the disk."""
        return self.log_file().read_at(size, position)

    def read_nowait(self, size: int, position: int) -> memoryview | None:
        """Read from the log file; None if that might wait for the disk."""
        return self.log_file().read_nowait(size, position)

    def find(self, offset: int, read: scan.Read) -> scan.Place | None:
        """Return the first batch whose last offset is at or above `offset`; None if the segment ends below it."""
        known = self.cache.position_of(offset)
        start = self.index.floor(offset) if known is None else known
        found = scan.first_reaching(read, start, self.size, offset)
        return None if found is None else found[0]

    def offset_behind(self, position: int) -> int | None:
        """Return an offset above all below that position, a little above; None if the loaded index ends before it."""
        indexes = self.cache.indexes
        return None if indexes is None else indexes[0].ceiling_of_position(position)

    def end_offset(self) -> int:
        """Return the offset after the last batch, found from the last index entry on.

        Raises CorruptData if the log file does not end with a whole batch.
        """
        end = self.base_offset
        start = self.index.entry(-1)[1] if len(self.index) else 0
        position = start
        for place in scan.places(self.read, start, self.size):
            end, position = place.last_offset + 1, place.position + place.size
        if position != self.size:
            raise CorruptData(f"{self.path(layout.LOG)}: {self.size - position} bytes at its end are no whole batch")
        return end

    # -- cutting --------------------------------------------------------------------------------------------

    def prepare_cut(self) -> None:
        """Read and open what a cut needs besides the log and its indexes, so that the cut is not refused halfway."""
        if self.aborted:
            self._open_aborted()

    def truncate_to(self, offset: int) -> int:
        """Drop every batch that reaches `offset`; returns the offset at which the segment ends now (≤ `offset`).

        The segment must be open for writing.
        """
        place = self.find(offset, self.read)
        if place is None:
            return offset
        end = min(offset, place.base_offset)
        self.cut_at(place.position, end)
        return end

    def cut_at(self, position: int, offset: int) -> None:
        """Cut the log file at a batch boundary, and remove the index entries after it."""
        index, times = self.load_indexes()
        self.cache = SegmentCache((index.below(offset, position), times.below(offset)))
        if any(entry.last_offset >= offset for entry in self.aborted):
            self.replace_aborted([entry for entry in self.aborted if entry.last_offset < offset])
        self.log_file().truncate(position)
        self.size = position
        self._look_whether_full()
        self.survey_end()

    def survey_end(self) -> None:
        """Find the timestamps, and the bytes since the last index entry, from the indexes and the log's end."""
        self.first_timestamp = self.max_timestamp = -1
        self.max_timestamp_offset = self.base_offset
        if len(self.time_index):
            self.max_timestamp, self.max_timestamp_offset = self.time_index.entry(-1)
        start = self.index.entry(-1)[1] if len(self.index) else 0
        self.bytes_since_index = self.size - start
        for scanned in scan.batches(self.log_file(), start, self.size):
            if scanned.header.max_timestamp > self.max_timestamp:
                self.max_timestamp = scanned.header.max_timestamp
                self.max_timestamp_offset = scanned.header.last_offset
        if self.size:
            first = parse_header(self.read(min(HEADER_SIZE, self.size), 0))
            self.first_timestamp = first.max_timestamp
