"""The steps before batches are written: check them, assign offsets, stamp them, and sum them up in a `Chunk`.

Rule 1: no offset is assigned, and no producer's state changes, before every batch of the call has passed its checks.
Rule 2: batches are stamped in the caller's buffer, which is then written without a copy.
"""

from dataclasses import dataclass
from typing import NamedTuple

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.log.producers import (
    NO_OFFSET,
    CompletedTxn,
    DataBatch,
    Marker,
    Origin,
    ProducerEntry,
    ProducerStates,
    SeenBatch,
    advance,
    check_epoch,
    end_transaction,
)
from logyard.broker.log.segment.index import AbortedTxn
from logyard.broker.log.segment.segment import Segment
from logyard.broker.records.batch import (
    ABORT,
    COMMIT,
    HEADER_SIZE,
    BatchHeader,
    Bounds,
    control_marker,
    control_type,
    iter_headers,
    iter_records,
    parse_header,
    stamp,
    stamp_log_append_time,
    validate_client_batch,
    verify_crc,
)
from logyard.broker.records.compression import recoding
from logyard.broker.records.header import NO_SEQUENCE, TRANSACTIONAL_BIT

NO_TIME = -1


class AppendInfo(NamedTuple):
    """The result of an append. `append_time_ms` is -1 with CreateTime; `start_offset` is the log's; `size` in bytes.

    For a `duplicate` nothing was written, and the offsets are those of the first append.
    """

    first_offset: int
    last_offset: int
    max_timestamp: int
    append_time_ms: int
    start_offset: int
    size: int
    duplicate: bool = False

    @classmethod
    def again(cls, seen: SeenBatch, log_start: int) -> "AppendInfo":
        """Return the result for a duplicate: that of its first append."""
        return cls(seen.first_offset, seen.last_offset, seen.timestamp, seen.timestamp, log_start, 0, True)


@dataclass(slots=True)
class Chunk:
    """Batches to write at once, and the facts to remember when they are written.

    `epochs` are (leader epoch, first offset); if the chunk `has_old` messages, of magic 0 or 1, only those after them.
    """

    data: memoryview
    first_offset: int
    last_offset: int
    max_timestamp: int
    timestamp_offset: int
    epochs: list[tuple[int, int]]
    producers: "Staged | None" = None
    has_old: bool = False


class Staged:
    """The producers' entries as they will be after the chunk; entries that it does not change come from the log."""

    __slots__ = ("_states", "completed", "entries", "unguarded")

    def __init__(self, states: ProducerStates) -> None:
        self._states = states
        self.entries: dict[int, ProducerEntry] = {}
        self.completed: list[CompletedTxn] = []
        self.unguarded: list[int] = []  # who wrote in a transaction, or had one ended: their guards have had their use

    def entry(self, producer_id: int) -> ProducerEntry | None:
        staged = self.entries.get(producer_id)
        return self._states.entries.get(producer_id) if staged is None else staged

    def take(self, header: BatchHeader, batch: memoryview, first_offset: int, origin: Origin, timestamp: int) -> None:
        """Stage the next entry of the batch's producer; `batch` is the whole batch, and is parsed only for a marker.

        Raises ApiError as `advance`, `end_transaction` and `Guards.check` do, CorruptData for a marker that does not
        parse.
        """
        entry = self.entry(header.producer_id)
        if header.attributes & TRANSACTIONAL_BIT:
            if origin is not Origin.LEADER and not header.is_control:
                self._check_guard(entry, header, origin)
            if origin is not Origin.RAISING_COORDINATOR or not self._states.guards.is_of(header):
                self.unguarded.append(header.producer_id)
        last_offset = first_offset + header.last_offset_delta
        if header.is_control:
            marker = read_marker(header, batch, last_offset)
            if marker is not None:
                self.entries[header.producer_id], completed = end_transaction(entry, marker, origin)
                if completed is not None:
                    self.completed.append(completed)
            return
        data = DataBatch(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            first_offset,
            last_offset,
            timestamp,
            header.is_transactional,
        )
        self.entries[header.producer_id] = advance(entry, data, origin)

    def _check_guard(self, entry: ProducerEntry | None, header: BatchHeader, origin: Origin) -> None:
        if entry is not None:
            if entry.txn_first_offset != NO_OFFSET and entry.epoch == header.producer_epoch:
                return
            check_epoch(entry, header.producer_epoch, header.producer_id)
        sequence = header.base_sequence if origin is Origin.CLIENT else NO_SEQUENCE
        self._states.guards.check(header.producer_id, header.producer_epoch, sequence, is_known=entry is not None)

    def commit(self, segment: Segment, high_watermark: int) -> bool:
        """Store the staged entries once the chunk is in `segment`; returns whether a transaction was aborted.

        Aborted transactions are added to the segment's index. Completed ones hold the last stable offset back until
        their markers are below the high watermark.
        """
        producers = self._states
        for entry in self.entries.values():
            producers.remember(entry)
        for producer_id in self.unguarded:
            producers.guards.end(producer_id)
        # A transaction that ends later in this chunk was still open when an earlier one ended, so it limits the last
        # stable offset that the earlier one's index entry gets.
        open_from = [done.first_offset for done in self.completed]
        for number in reversed(range(len(open_from) - 1)):
            open_from[number] = min(open_from[number], open_from[number + 1])
        aborted = False
        for number, done in enumerate(self.completed, start=1):
            if done.aborted:
                stable = min([producers.stable_offset_after(done), *open_from[number : number + 1]])
                segment.note_aborted(AbortedTxn(done.producer_id, done.first_offset, done.last_offset, stable))
                aborted = True
            if done.last_offset >= high_watermark:
                producers.remember_completed(done)
        return aborted


def read_marker(header: BatchHeader, batch: memoryview, offset: int) -> Marker | None:
    """Return the marker in a control batch; None if compaction emptied the batch, or the marker is of another kind."""
    found = next(iter_records(batch), None)
    if found is None or control_type(found) not in (ABORT, COMMIT):
        return None
    kind, coordinator_epoch = control_marker(found)
    return Marker(
        header.producer_id, header.producer_epoch, coordinator_epoch, offset, header.max_timestamp, kind == ABORT
    )


class Admission(NamedTuple):
    """What an append needs to know of the log."""

    next_offset: int
    config: TopicConfig
    bounds: Bounds
    producers: ProducerStates


def bounds_of(config: TopicConfig, *, validate_records: bool) -> Bounds:
    """Return what the topic's config and logyard.validate.records demand of a client's batch."""
    levels = {"gzip": config.compression_gzip_level, "zstd": config.compression_zstd_level}
    return Bounds(
        max_message_bytes=config.max_message_bytes,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        log_append_time=config.message_timestamp_type == "LogAppendTime",
        validate_records=validate_records,
        recoding=recoding(config.compression_type, levels),
        keys_wanted=config.compacted,
    )


def admit_for_leader(
    data: memoryview, log: Admission, leader_epoch: int, now_ms: int, origin: Origin, only: BatchHeader | None = None
) -> Chunk | SeenBatch:
    """Assign offsets to a leader's batches and stamp them; for a duplicate return the batch seen before.

    `only` is the header of `data`, if that is one batch and its header is known. A client's batches were checked before
    (validation.py); others are checked here. Raises ApiError: RECORD_LIST_TOO_LARGE (larger than segment.bytes), as
    `advance` and `end_transaction` do, and for batches that are not a client's as `validate_client_batch` does.
    """
    next_offset, config, bounds, producers = log
    offset, position, end = next_offset, 0, len(data)
    if end > config.segment_bytes:
        raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, f"{end} bytes at once, segment.bytes is {config.segment_bytes}")
    by_client = origin is Origin.CLIENT
    staged: Staged | None = None
    batches: list[tuple[int, BatchHeader, int]] = []
    max_timestamp, timestamp_offset = NO_TIME, offset
    while position < end:
        header = only or _header(data, position)
        if not by_client:
            validate_client_batch(data, position, header, bounds, from_client=False, check_crc=False)
        last_offset = offset + header.last_offset_delta
        timestamp = now_ms if bounds.log_append_time else header.max_timestamp
        if header.producer_id >= 0:
            staged = staged or Staged(producers)
            entry = staged.entry(header.producer_id)
            if by_client and entry is not None:
                seen = entry.duplicate_of(header.producer_epoch, header.base_sequence, header.last_sequence)
                if seen is not None:
                    return seen
            staged.take(header, data[position : position + header.length], offset, origin, timestamp)
        if timestamp > max_timestamp:
            max_timestamp, timestamp_offset = timestamp, last_offset
        batches.append((position, header, offset))
        offset = last_offset + 1
        position += header.length
    if not batches:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "no batch to append")
    for position, header, base_offset in batches:
        stamp(data, position, base_offset, leader_epoch)
        if bounds.log_append_time:
            stamp_log_append_time(data, position, header, now_ms)
    epochs = [(leader_epoch, next_offset)]
    return Chunk(data, next_offset, offset - 1, max_timestamp, timestamp_offset, epochs, staged)


def _header(data: memoryview, position: int) -> BatchHeader:
    try:
        return parse_header(data, position)
    except CorruptData as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None


def base_below(data: memoryview, offset: int) -> int | None:
    """Return the base offset of the first batch if `offset` lies inside it, after its first record; None otherwise.

    Raises ApiError(CORRUPT_MESSAGE).
    """
    if len(data) < HEADER_SIZE:
        return None
    first = _header(data, 0)
    return first.base_offset if first.base_offset < offset <= first.last_offset else None


def admit_from_leader(data: memoryview, log: Admission, size_max: int) -> tuple[list[Chunk], int]:
    """Check the batches that a follower fetched; a partial batch at the end is left out.

    Returns chunks of at most `size_max` bytes each (a larger batch is a chunk of its own), with the leader's offsets,
    and their total size in bytes. Raises ApiError: CORRUPT_MESSAGE (wrong CRC or framing), OFFSET_OUT_OF_RANGE (an
    offset is below the log's end or the batch before).
    """
    chunks: list[Chunk] = []
    staged = Staged(log.producers)
    next_offset = log.next_offset
    start = end = 0
    try:
        for position, header in iter_headers(data):
            verify_crc(data, position, header)
            if header.base_offset < next_offset or header.last_offset_delta < 0:
                raise ApiError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"a fetched batch has offset {header.base_offset}, {next_offset} is next",
                )
            if not chunks or position + header.length - start > size_max:
                start = position
                # An old message has only its last offset: a segment that begins with it takes the log's end as base.
                first = header.base_offset if header.magic >= 2 else next_offset
                chunks.append(Chunk(data[:0], first, header.last_offset, NO_TIME, header.last_offset, []))
            chunk = chunks[-1]
            end = position + header.length
            if header.producer_id >= 0:
                # Each chunk has a stage of its own, so that its producers are remembered when it is written.
                if chunk.producers is None:
                    chunk.producers = staged = _carry_on(staged, log.producers)
                staged.take(header, data[position:end], header.base_offset, Origin.LEADER, header.max_timestamp)
            chunk.data = data[start:end]
            chunk.last_offset = header.last_offset
            if header.max_timestamp > chunk.max_timestamp:
                chunk.max_timestamp, chunk.timestamp_offset = header.max_timestamp, header.last_offset
            if header.magic < 2:
                chunk.has_old = True
                chunk.epochs.clear()
            elif header.partition_leader_epoch >= 0:
                chunk.epochs.append((header.partition_leader_epoch, header.base_offset))
            next_offset = header.last_offset + 1
    except CorruptData as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    return chunks, end


def _carry_on(before: Staged, states: ProducerStates) -> Staged:
    """Return a new stage that starts with the entries of the last one."""
    after = Staged(states)
    after.entries.update(before.entries)
    return after
