"""ListOffsets by timestamp: the first record of a log that is not older than a timestamp.

`find_now` looks at what is in memory and little; a `TimestampSearch` finds the rest in a thread.
"""

from collections.abc import Callable, Iterator

from logyard.broker.errors import ApiError, CorruptData, ErrorCode, StorageError
from logyard.broker.log.leader_epochs import UNDEFINED_EPOCH, EpochCache
from logyard.broker.log.segment import index_builder, scan, timestamps
from logyard.broker.log.segment.segment import Segment
from logyard.broker.log.segment.segment_list import SegmentList

FoundRecord = tuple[int, int, int]
"""A record's timestamp in ms, offset, and leader epoch (-1 if it is not known)."""


class TimestampSearch:
    """A search in a log's segments; to be called in a thread, also while the log is written to.

    It is made on the event loop, and finds there the first segment that may have the record.

    `log_start()` is the log's start, `interval` index.interval.bytes, `name` the partition, for messages.
    """

    def __init__(
        self,
        segments: SegmentList,
        epochs: EpochCache,
        timestamp: int,
        log_start: Callable[[], int],
        interval: int,
        name: str,
    ) -> None:
        self._first = segments.first_as_late(timestamp)
        if self._first is not None and self._first is not segments.active:
            segments.open_segments.touch(self._first)
        self._segments, self._cuts = segments, segments.cuts
        self._epochs, self._timestamp = epochs, timestamp
        self._log_start, self._interval, self._name = log_start, interval, name

    def __call__(self) -> FoundRecord | None:
        """Search; None if every record is older. Waits for the disk.

        Raises StorageError for damaged data, ApiError(NOT_LEADER_OR_FOLLOWER) if the log was cut or compacted
        meanwhile: the client asks again.
        """
        segments = self._segments
        for segment in self._candidates():
            found = None
            try:
                reader = segment.reader()
                if segments.cuts == self._cuts:
                    index_builder.load_reader(reader, self._interval)
                    first = timestamps.first_in_segment(reader, self._timestamp, self._log_start())
                    found = None if first is None else _with_epoch(self._epochs, *first)
            except (CorruptData, FileNotFoundError) as error:
                # A closed segment that lost its tail has no such record; a read of it will report the loss.
                is_short = isinstance(error, scan.CutShort) and segment is not segments.active
                if not is_short and segments.cuts == self._cuts and segment in segments.all:
                    raise StorageError(f"{segment.directory}: {error}") from error
                # otherwise retention deleted it meanwhile
            if segments.cuts != self._cuts:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self._name}: the log was cut meanwhile")
            if found is not None:
                return found
        return None

    def _candidates(self) -> Iterator[Segment]:
        """Yield the segments that may have the record; mostly the first has it, and no other is looked at."""
        first = self._first
        if first is None:
            return
        yield first
        # A copy, which is made at once: retention takes segments away meanwhile. If the log is cut, it is void.
        for segment in self._segments.all.copy():
            if segment.base_offset > first.base_offset and segment.max_timestamp >= self._timestamp:
                yield segment


def find_now(segments: SegmentList, epochs: EpochCache, timestamp: int, log_start: int) -> FoundRecord | None:
    """Find what a TimestampSearch finds, without waiting for the disk; for the log's own thread.

    Raises scan.NotCached where a thread has to search.
    """
    segment = segments.first_as_late(timestamp)
    if segment is None:
        return None
    if segment is not segments.active:
        segments.open_segments.touch(segment)
    try:
        moment, offset = timestamps.first_nowait(segment, timestamp, log_start)
    except (CorruptData, FileNotFoundError):
        raise scan.NotCached from None  # the thread says what is damaged
    return _with_epoch(epochs, moment, offset)


def _with_epoch(epochs: EpochCache, moment: int, offset: int) -> FoundRecord:
    epoch = epochs.epoch_of(offset)
    return moment, offset, UNDEFINED_EPOCH if epoch is None else epoch
