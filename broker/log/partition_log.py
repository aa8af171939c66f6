"""One replica's log: appending and reading, truncation, retention, swaps, closing.

Composed of a list of segments, the leader epochs, the producers' states, and a state of flushing.

Rule 1: one thread owns a log. A method that waits for the disk says so; the others return work for another thread
(`FlushPlan.run`, `LogSlice.load`, `swap.prepare`).
Rule 2: high watermark and leader epochs are decided by replication; the log stores them.
"""

from collections.abc import Callable, Sequence
from functools import partial

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ApiError, ErrorCode, StorageError
from logyard.broker.log import checkpoints, fetch, layout, validation
from logyard.broker.log.append import (
    NO_TIME,
    Admission,
    AppendInfo,
    Chunk,
    admit_for_leader,
    admit_from_leader,
    base_below,
    bounds_of,
)
from logyard.broker.log.disk.port import Disk, write_whole
from logyard.broker.log.epochs_file import EpochsFile
from logyard.broker.log.fetch import LogSlice
from logyard.broker.log.flush import FlushPlan, FlushState
from logyard.broker.log.guards import Guards
from logyard.broker.log.leader_epochs import EpochCache, EpochEntry
from logyard.broker.log.listener import LogHost, standalone_host
from logyard.broker.log.producer_history import ProducerHistory
from logyard.broker.log.producers import Origin, SeenBatch
from logyard.broker.log.recovery import recovery, replay
from logyard.broker.log.segment import creation, swap
from logyard.broker.log.segment.index import AbortedTxn
from logyard.broker.log.segment.segment import Segment
from logyard.broker.log.segment.segment_list import LATER_THAN_ANY, SegmentList
from logyard.broker.log.timestamp_search import FoundRecord, TimestampSearch, find_now
from logyard.broker.model import TopicId, TopicPartition
from logyard.broker.records.batch import Bounds

_new = tuple.__new__  # hot path: a NamedTuple's own is Python


class PartitionLog:
    """The log of one replica, for the one thread that owns it (the event loop).

    Offsets are absolute. `is_future`: this log is the copy that a move to another log directory fills. `is_moving`:
    such a copy is being filled from this log, so the records already copied must not be rewritten. A failure of the
    disk is raised as StorageError; after `fail`, every use raises that error.
    """

    def __init__(
        self,
        disk: Disk,
        tp: TopicPartition,
        directory: str,
        config: TopicConfig,
        state: recovery.LogState,
        *,
        now_ms: int,
        host: LogHost | None = None,
        is_future: bool = False,
    ) -> None:
        self.host = standalone_host(disk) if host is None else host
        self.disk = disk
        self.tp = tp
        self.directory = directory
        self.config = config
        self.is_future = is_future
        self.is_moving = False
        self.topic_id = state.topic_id
        self.log_start_offset = state.log_start_offset
        self.log_end_offset = state.log_end_offset
        self.high_watermark = state.log_start_offset
        self.now_ms = now_ms
        self.failure: StorageError | None = None
        self.producers = state.producers
        self.producers.guards = Guards(self.host.verification)
        self._epochs_file = EpochsFile(disk)
        self.epochs = EpochCache(state.epochs, log_end_offset=lambda: self.log_end_offset, save=self._save_epochs)
        self.segments = SegmentList(disk, state.segments, self.host.open_segments)
        self.flush_state = FlushState(
            disk, directory, self.segments, state.recovery_point, synced=state.synced, is_new=state.is_new
        )
        self.history = ProducerHistory(disk, directory, self.producers, self.segments, self.flush_state)
        self._end_found = state.log_end_offset

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.directory}, {self.log_start_offset}-{self.log_end_offset})"

    # -- state ----------------------------------------------------------------------------------------------

    @property
    def config(self) -> TopicConfig:
        """The topic's settings; a change counts from the next call on."""
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._config = config
        self.bounds = bounds_of(config, validate_records=self.host.validate_records)

    @property
    def pending_reload(self) -> replay.Reload | None:
        """The producers' states to read again before anything is appended; None if they are complete."""
        return self.history.pending_reload

    @property
    def size(self) -> int:
        """Bytes of all log files."""
        return self.segments.size

    @property
    def recovery_point(self) -> int:
        """Everything below this offset is synced."""
        return self.flush_state.recovery_point

    def end_of(self, number: int) -> int:
        """Return the offset after the segment of that number: the next one's base, or the log's end."""
        return self.segments.end_of(number, self.log_end_offset)

    @property
    def last_stable_offset(self) -> int:
        """The offset below which no record depends on an open transaction; never above the high watermark."""
        first = self.producers.first_unstable_offset
        if first is None or first >= self.high_watermark:
            return self.high_watermark
        return max(first, self.log_start_offset)

    def set_high_watermark(self, offset: int) -> None:
        """Set the high watermark; transactions whose markers are below it no longer hold the stable offset back."""
        self.high_watermark = offset
        self.producers.high_watermark_moved(offset)

    def fail(self, error: StorageError) -> None:
        """From now on raise this error at every use: the directory is offline."""
        self.failure = error

    def check_usable(self) -> None:
        if self.failure is not None:
            raise self.failure

    def assign_topic_id(self, topic_id: TopicId) -> None:
        """Set the topic's id, in `partition.metadata` as well; raises ApiError(INCONSISTENT_TOPIC_ID)."""
        if self.topic_id == topic_id:
            return
        if self.topic_id is not None:
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{self.tp}: has {self.topic_id}, not {topic_id}")
        self.check_usable()
        path = f"{self.directory}/{layout.PARTITION_METADATA}"
        write_whole(self.disk, path, checkpoints.encode_partition_metadata(topic_id), sync=False)
        self.flush_state.note(path)
        self.topic_id = topic_id

    def _save_epochs(self, entries: Sequence[EpochEntry]) -> None:
        """Write the epochs without a sync: recovery reads lost ones from the batches above the recovery point."""
        self.check_usable()
        self.flush_state.note_epochs(self._epochs_file.write(self.directory, checkpoints.encode_epochs(entries)))

    # -- appending ------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        batches: memoryview,
        leader_epoch: int,
        *,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        validated_by: Bounds | None = None,
    ) -> AppendInfo:
        """Check, number, stamp (in place, in `batches`) and write what a client or coordinator sent.

        `validated_by` are the bounds by which a thread has validated the batches. If they are None, or no longer the
        log's bounds, the batches are validated here. Raises ApiError as `admit_for_leader`, `validation.validate` and
        `require_producers` do; the log is unchanged then.
        """
        if self.failure is not None:
            raise self.failure
        self.now_ms = now_ms
        if self.history.pending_reload is not None:
            self.require_producers()
        bounds, only = self.bounds, None
        by_client = origin is Origin.CLIENT
        if (by_client or bounds.recoding is not None) and (validated_by is None or validated_by != bounds):
            batches, only = validation.validate_with_header(batches, bounds, now_ms, from_client=by_client)
        admission = _new(Admission, (self.log_end_offset, self._config, bounds, self.producers))
        chunk = admit_for_leader(batches, admission, leader_epoch, now_ms, origin, only)
        if isinstance(chunk, SeenBatch):
            return AppendInfo.again(chunk, self.log_start_offset)
        self._write(chunk, now_ms)
        append_time_ms = now_ms if bounds.log_append_time else NO_TIME
        found = chunk.first_offset, chunk.last_offset, chunk.max_timestamp
        return _new(AppendInfo, (*found, append_time_ms, self.log_start_offset, len(batches), False))

    def validation_work(
        self, batches: memoryview, now_ms: Callable[[], int], validated_by: Bounds | None, *, always: bool = False
    ) -> validation.ValidationWork | Bounds | None:
        """Return the validation that a thread has to do before the append, and the bounds that it checks.

        Bounds: it is done, by these. None: the append does it, since it is short, or it was done by the same bounds.
        With `always` it is returned however short it is: many short ones together are long. `now_ms` is asked only
        where there is work.
        """
        bounds = self.bounds
        if validated_by is not None and validated_by == bounds:
            return None
        if not always:
            if validation.is_usual(batches, bounds):
                return None
            if validation.validate_at_once(batches, bounds, now_ms):
                return bounds
            if validation.is_little(batches, bounds):
                return None
        return partial(validation.validate, bounds=bounds, now_ms=now_ms(), piecewise=True), bounds

    def append_as_follower(self, data: memoryview, *, now_ms: int | None = None) -> AppendInfo:
        """Write the batches fetched from the leader unchanged; a partial batch at the end is left out.

        Raises ApiError: CORRUPT_MESSAGE, or OFFSET_OUT_OF_RANGE if they do not follow the log's end.
        """
        self.check_usable()
        if now_ms is not None:
            self.now_ms = now_ms
        self.want_producers()
        log_start = self.log_start_offset
        base = base_below(data, log_start) if self.log_end_offset == log_start else None
        if base is not None:
            # DeleteRecords put the empty log's start inside the leader's first batch.
            self.truncate_fully(base)
            self.log_start_offset = log_start
        admission = Admission(self.log_end_offset, self._config, self.bounds, self.producers)
        chunks, size = admit_from_leader(data, admission, self._config.segment_bytes)
        for chunk in chunks:
            self._write(chunk, self.now_ms)
        first = chunks[0].first_offset if chunks else self.log_end_offset
        latest = max((chunk.max_timestamp for chunk in chunks), default=NO_TIME)
        return AppendInfo(first, self.log_end_offset - 1, latest, NO_TIME, self.log_start_offset, size)

    def _write(self, chunk: Chunk, now_ms: int) -> None:
        config, segments = self._config, self.segments
        segment = segments.active
        size = len(chunk.data)
        if not segment.has_room(size, chunk.last_offset, chunk.max_timestamp, now_ms, config):
            segment = self.roll(chunk.first_offset, now_ms)
        if chunk.has_old:
            self.epochs.clear()
        self.epochs.follow(chunk.epochs)
        segment.append(
            chunk.data,
            chunk.first_offset,
            chunk.last_offset,
            chunk.max_timestamp,
            chunk.timestamp_offset,
            config.index_interval_bytes,
        )
        segments.size += size
        self.log_end_offset = chunk.last_offset + 1
        if chunk.producers is not None and chunk.producers.commit(segment, self.high_watermark):
            self.flush_state.names_changed()
        if self.owes_sync:
            # The topic asks that records be synced before they are acknowledged.
            self.flush()

    @property
    def owes_sync(self) -> bool:
        """Whether `flush.messages` records are unsynced, so that the next append must be synced before it is
        acknowledged."""
        return self.log_end_offset - self.flush_state.recovery_point >= self._config.flush_messages

    def roll(self, base_offset: int, now_ms: int) -> Segment:
        """Seal the active segment and add a new one; a snapshot of the producers is written in between."""
        self.want_producers()
        sealed = self.segments.active
        sealed.seal()
        self.history.write_snapshot(base_offset)
        active = creation.create(self.disk, self.directory, base_offset, self._config, now_ms, after=sealed)
        self.segments.add(active)
        self.flush_state.names_changed()
        self.host.listener.rolled(self)
        return active

    # -- reading --------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, limit_offset: int, min_one: bool, whole: bool = False) -> LogSlice:
        """Find batches from the one that holds `offset` on, all below `limit_offset`: see `fetch.find`.

        Raises ApiError(OFFSET_OUT_OF_RANGE) if `offset` is outside the log, StorageError.
        """
        if self.failure is not None:
            raise self.failure
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.tp}: offset {offset} is not within {self.log_start_offset} and {self.log_end_offset}",
            )
        interval, end = self._config.index_interval_bytes, self.log_end_offset
        return fetch.find(
            self.segments, offset, max_bytes, limit_offset, min_one, whole, end, interval, self._lost_tail
        )

    def _lost_tail(self, segment: Segment, offset: int, why: Exception) -> None:
        """Report once, from any thread, that a closed segment ends inside a batch and `offset` is lost."""
        if self.segments.note_lost_tail(segment, offset):
            lost = f"its tail is lost from offset {offset} on; reading continues in the next segment"
            name = layout.file_name(segment.base_offset, layout.LOG)
            self.host.listener.damaged(self, f"{name}: {lost} ({why})")

    def find_late_now(self, timestamp: int) -> FoundRecord | None:
        """Find what `timestamp_search` finds, without waiting: raises scan.NotCached where a thread has to search."""
        if self.failure is not None:
            raise self.failure
        return find_now(self.segments, self.epochs, timestamp, self.log_start_offset)

    def timestamp_search(self, timestamp: int) -> TimestampSearch:
        """Return the search for the first record at or after `timestamp` (ms): (timestamp, offset, leader epoch or -1).

        Called, it waits for the disk, and may run in a thread while the log is written to.
        """
        self.check_usable()
        interval = self._config.index_interval_bytes
        return TimestampSearch(
            self.segments, self.epochs, timestamp, lambda: self.log_start_offset, interval, str(self.tp)
        )

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp in the log, in ms; without any one that a search does not find."""
        largest = self.segments.max_timestamp
        return largest if largest >= 0 else LATER_THAN_ANY

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTxn]:
        """Return the aborted transactions that touch offsets from `start` to below `end`."""
        return self.segments.aborted_between(start, end)

    # -- flushing -------------------------------------------------------------------------------------------

    def flush(self, up_to: int | None = None) -> None:
        """Make everything below `up_to` (default: the end) durable. Waits for the disk."""
        plan = self.prepare_flush(up_to)
        if plan is not None:
            plan.run()
            self.flush_state.done(plan)

    def prepare_flush(self, up_to: int | None = None) -> FlushPlan | None:
        """Return the plan of a `flush`; pass it to `flush_state.done` after it was run. See `FlushState.plan`."""
        self.check_usable()
        return self.flush_state.plan(self.log_end_offset if up_to is None else min(up_to, self.log_end_offset))

    def close(self) -> None:
        """Seal, write the producers' snapshot, flush: the log then opens without recovery. Waits for the disk.

        If nothing was appended since the last clean shutdown, all of that is durable already; only the indexes are
        trimmed.
        """
        self.check_usable()
        active = self.segments.active
        as_found = self.flush_state.is_as_found and not self.segments.cuts and self.log_end_offset == self._end_found
        self.want_producers()
        active.seal()
        if not as_found:
            self.history.write_snapshot(self.log_end_offset)
            # The index files of an active segment are not part of a flush plan that has no new records.
            for file in active.unsynced:
                file.sync()
            self.flush()
        self.fail(StorageError(f"{self.directory}: closed"))

    # -- cutting the end ------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Drop every batch that reaches `offset`; returns whether there was one.

        The log then ends at `offset`, or lower if `offset` lies inside a batch. If that is below the log's start, the
        log is emptied. Without file descriptors (DiskError) nothing has changed.
        """
        self.check_usable()
        if offset >= self.log_end_offset:
            return False
        end = self.segments.end_after_cut(offset, self._config.index_interval_bytes)
        if end < self.log_start_offset or offset < self.segments[0].base_offset:
            self.truncate_fully(min(offset, self.log_start_offset))
            return True
        snapshots = self._prepare_cut(end)
        with self._epochs_file.ready(self.directory):
            self.log_end_offset, retired = self.segments.cut(offset, self._config)
            # From here on nothing is opened.
            self._retired(retired)
            self.flush_state.note(self.segments.active.path(layout.LOG))
            self.epochs.truncate_from_end(self.log_end_offset)
        self.history.cut(self.log_end_offset, snapshots)
        self.high_watermark = min(self.high_watermark, self.log_end_offset)
        self.host.listener.cut(self, self.log_end_offset)
        return True

    def truncate_fully(self, new_start: int) -> None:
        """Drop everything and start over, empty, at `new_start`.

        Without file descriptors (DiskError) nothing has changed.
        """
        self.check_usable()
        snapshots = self._prepare_cut(new_start)
        with self._epochs_file.ready(self.directory):
            # Aside: the old segments stay until nothing more is to be opened.
            new = creation.create(self.disk, self.directory, new_start, self._config, self.now_ms, suffix=layout.NEW)
            self._retired(self.segments.start_over(new))
            self.epochs.clear()
        self.history.clear(snapshots)
        # Above the start nothing is left to sync; the changed names are synced with the next flush.
        self.log_start_offset = self.log_end_offset = self.high_watermark = new_start
        self.host.listener.cut(self, new_start)

    def _prepare_cut(self, offset: int) -> list[int]:
        """Before a cut: invalidate look-ups in other threads, lower the checkpoints and the recovery point.

        Returns the offsets of the producers' snapshots. No harm if no cut follows.
        """
        self.segments.cuts += 1
        self.host.listener.cutting(self, offset)
        self.flush_state.recovery_point = min(self.flush_state.recovery_point, offset)
        return replay.snapshot_offsets(self.disk, self.directory)

    def _retired(self, paths: list[str]) -> None:
        if paths:
            self.host.listener.retired(self, paths)
            self.flush_state.names_changed()

    def finish_reload(self, reload: replay.Reload) -> None:
        """Take over the states that were read, unless the log was cut again since."""
        for what in self.history.finish_reload(reload):
            self.host.listener.damaged(self, f"the producers' states are incomplete, skipped {what}")

    def want_producers(self) -> None:
        """Before a write: read the producers' states now if a truncation left them unread."""
        reload = self.history.pending_reload
        if reload is not None:
            reload.run()
            self.finish_reload(reload)

    def require_producers(self) -> None:
        """Do what `want_producers` does, unless a thread is about it: that reads as much as a segment holds.

        Raises ApiError(NOT_ENOUGH_REPLICAS) then: clients and coordinators try again.
        """
        if self.pending_reload is not None and self.pending_reload.is_awaited:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{self.tp}: its producers are read again after a truncation")
        self.want_producers()

    # -- cutting the front ----------------------------------------------------------------------------------

    def advance_log_start(self, offset: int) -> bool:
        """Advance the log's start to `offset`; whole segments below it are deleted by the next retention run.

        Returns whether that changed anything. Raises ApiError(OFFSET_OUT_OF_RANGE) above the high watermark.
        """
        self.check_usable()
        if offset > self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.tp}: {offset} is above the high watermark {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        return True

    def drop_oldest(self, count: int) -> None:
        """Drop the `count` oldest segments, never the active one; the log begins after them. `retention.py` decides how
        many."""
        start = self.segments[count].base_offset
        if start > self.log_start_offset:
            self.log_start_offset = start
            self.epochs.truncate_from_start(start)
        self._retired(self.segments.drop_oldest(count))

    # -- replacing ------------------------------------------------------------------------------------------

    def prepare_replacement(
        self, new_files: Sequence[str], old_bases: Sequence[Sequence[int]]
    ) -> list[swap.Replacement]:
        """Check replacement logs and write them next to the segments they replace: see `swap.prepare`.

        Waits for the disk; may run in a thread while the log is written to.
        """
        return swap.prepare(self.segments.closed, new_files, old_bases, self._config.index_interval_bytes)

    def swap_in(self, replacements: Sequence[swap.Replacement]) -> None:
        """Put prepared replacements in place, by renames only, so that the event loop is not blocked.

        Durable with the directory's next sync. Raises BadPart, with nothing changed, if the segments have changed
        since.
        """
        self.check_usable()
        if replacements and self.is_moving:
            swap.withdraw(replacements)
            raise swap.BadPart(replacements[0].new.base_offset, "the replica is moving to another log directory")
        self._retired(self.segments.swap_in(replacements))

    # -- the directory --------------------------------------------------------------------------------------

    def moved_to(self, directory: str) -> None:
        """Continue under the directory's new name. A future log is the replica's log from now on."""
        self.segments.moved_to(directory)
        self.directory = self.history.directory = directory
        self.is_future = False
        self.flush_state.moved_to(directory)

    def discard(self, why: str) -> None:
        """Close all files: the directory is being removed or is offline."""
        if self.failure is None:
            self.fail(StorageError(f"{self.directory}: {why}"))
        self.segments.release()
