"""The segments of a log and what keeps them whole: rolling, flushing, cutting at both ends, epochs, producers.

Rule 1: one thread owns a log. What waits for the disk is handed out to be run elsewhere (`FlushPlan.run`,
        `LogSlice.load`, `swap.prepare`), or says so in its docstring.
Rule 2: what lies below `recovery_point` is synced, indexes and epochs included. A truncation below it is told to the
        keeper first, so that the checkpoint on disk never claims more than there is (facts §13).
Rule 3: high watermark and leader epochs are decided elsewhere; the log keeps them.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ApiError, ErrorCode, StorageError
from logyard.broker.log import checkpoints, layout, retention
from logyard.broker.log.append import bounds_of
from logyard.broker.log.disk.port import Disk, remove_if_there, write_whole
from logyard.broker.log.flush import Unsynced
from logyard.broker.log.keeping import FlushPlan, LogKeeper, NoKeeper
from logyard.broker.log.leader_epochs import EpochCache, EpochEntry
from logyard.broker.log.recovery import recovery, replay
from logyard.broker.log.segment import index_builder, swap
from logyard.broker.log.segment.open_segments import OpenSegments
from logyard.broker.log.segment.segment import Segment
from logyard.broker.model import TopicId, TopicPartition

_by_base = attrgetter("base_offset")


class SegmentedLog:
    """The state of one replica's log.

    Offsets are absolute; `size` is the bytes of all log files; `cuts` counts how often bytes were taken away or moved.
    Disk trouble is raised as StorageError; after `fail`, every use raises what it was given.
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
        keeper: LogKeeper | None = None,
        open_segments: OpenSegments | None = None,
        is_future: bool = False,
        is_new: bool = False,
        validate_records: bool = False,
    ) -> None:
        self._validate_records = validate_records
        self.disk = disk
        self.tp = tp
        self.directory = directory
        self.is_future = is_future
        self.is_moving = False  # a future log is being filled from it: what was copied must not be rewritten
        self.topic_id = state.topic_id
        self.config = config
        self.segments = state.segments
        self.active = state.segments[-1]
        self.log_start_offset = state.log_start_offset
        self.log_end_offset = state.log_end_offset
        self.recovery_point = state.recovery_point
        self.high_watermark = state.log_start_offset
        self.producers = state.producers
        self.reload: replay.Reload | None = None  # what has to be read again before anything is appended
        self.epochs = EpochCache(state.epochs, log_end_offset=lambda: self.log_end_offset, save=self._save_epochs)
        self.size = sum(segment.size for segment in state.segments)
        self.cuts = 0
        self.lost_tails: dict[int, int] = {}  # base offset of a closed segment → the first offset it has no batch for
        self.failure: StorageError | None = None
        self.keeper = NoKeeper(disk) if keeper is None else keeper
        self.open_segments = OpenSegments() if open_segments is None else open_segments
        self.now_ms = now_ms
        # When it was last flushed, on the clock that never goes back; None until somebody has looked.
        self.flushed_at: float | None = None
        self._held: dict[str, frozenset[int]] = {}
        self._end_found = state.log_end_offset
        self._unsynced = Unsynced(disk, directory, synced=state.synced, is_new=is_new)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.directory}, {self.log_start_offset}-{self.log_end_offset})"

    @property
    def config(self) -> TopicConfig:
        """The topic's settings; they count from the next call on."""
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._config = config
        self.bounds = bounds_of(config, validate_records=self._validate_records)

    # -- state ----------------------------------------------------------------------------------------------

    def fail(self, error: StorageError) -> None:
        """From now on raise this at every use: the directory is offline."""
        self.failure = error

    def check_usable(self) -> None:
        if self.failure is not None:
            raise self.failure

    def load_indexes(self, segment: Segment) -> None:
        """Read a segment's index files; make them again where they are damaged. Waits for the disk."""
        index_builder.load(segment, self._config.index_interval_bytes)

    def lost_tail(self, segment: Segment, offset: int, why: Exception) -> None:
        """A closed segment ends inside a batch: tell once, from any thread, that `offset` is not there."""
        known = self.lost_tails.get(segment.base_offset)
        if known is None:
            lost = f"it lost its tail, offset {offset} and what comes behind it there: reading goes on in the next one"
            self.keeper.damaged(self, f"{layout.file_name(segment.base_offset, layout.LOG)}: {lost} ({why})")
        self.lost_tails[segment.base_offset] = offset if known is None else min(known, offset)

    def count_cuts(self) -> int:
        return self.cuts

    def number_of(self, offset: int) -> int:
        """Which segment holds (or would hold) an offset."""
        if offset >= self.active.base_offset:
            return len(self.segments) - 1
        return max(0, bisect_right(self.segments, offset, key=_by_base) - 1)

    def end_of(self, number: int) -> int:
        """The offset behind a segment: the next one's base, or the log's end."""
        following = number + 1
        return self.segments[following].base_offset if following < len(self.segments) else self.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Up to where nothing depends on an open transaction; never above the high watermark."""
        first = self.producers.first_unstable_offset
        if first is None or first >= self.high_watermark:
            return self.high_watermark
        return max(first, self.log_start_offset)

    def set_high_watermark(self, offset: int) -> None:
        """Take what replication decided; transactions whose markers are below it are done with."""
        self.high_watermark = offset
        self.producers.high_watermark_moved(offset)

    def assign_topic_id(self, topic_id: TopicId) -> None:
        """Keep the topic's id, in `partition.metadata` as well; raises ApiError(INCONSISTENT_TOPIC_ID)."""
        if self.topic_id == topic_id:
            return
        if self.topic_id is not None:
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{self.tp}: has {self.topic_id}, not {topic_id}")
        self.check_usable()
        path = f"{self.directory}/{layout.PARTITION_METADATA}"
        write_whole(self.disk, path, checkpoints.encode_partition_metadata(topic_id), sync=False)
        self.topic_id = topic_id
        self.note_unsynced(path)

    def _save_epochs(self, entries: Sequence[EpochEntry]) -> None:
        """Write the epochs so that they outlive the process; the next flush syncs them.

        What the machine may lose of them, recovery finds again in the batches above the recovery point.
        """
        self.check_usable()
        path = f"{self.directory}/{layout.LEADER_EPOCHS}"
        write_whole(self.disk, path, checkpoints.encode_epochs(entries), sync=False)
        self._unsynced.note_epochs(path)

    # -- growing --------------------------------------------------------------------------------------------

    def roll(self, base_offset: int, now_ms: int) -> Segment:
        """Seal the active segment and go on in a new one; a snapshot of the producers is taken between them."""
        self.want_producers()
        self.active.seal()
        self.note_unsynced(replay.write_snapshot(self.disk, self.directory, base_offset, self.producers))
        self.active = Segment.create(self.disk, self.directory, base_offset, self._config, now_ms)
        self.segments.append(self.active)
        self.names_changed()
        self.keeper.rolled(self)
        return self.active

    def note_unsynced(self, path: str) -> None:
        """Have the next flush sync a small file."""
        self._unsynced.note(path)

    def names_changed(self) -> None:
        """Have the next flush sync the directory."""
        self._unsynced.names_changed()

    def prepare_flush(self, up_to: int | None = None) -> FlushPlan | None:
        """Gather what makes all below `up_to` (default: the end) durable; None where nothing is to be done.

        Run the plan anywhere, then hand it to `flushed`. Overlapping plans are fine: each is complete.
        """
        self.check_usable()
        end = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
        first = self.number_of(self.recovery_point)
        behind = self.number_of(end - 1) + 1 if end > self.recovery_point else first
        while first > 0 and self.segments[first - 1].unsynced:
            first -= 1  # its records are durable, but it was sealed since: its end and its indexes are not
        segments = self.segments[first:behind]
        if not segments and self._unsynced.is_clear:
            return None
        files = [file for segment in segments for file in (segment.log_file(), *segment.unsynced)]
        return FlushPlan(self.disk, end, self.cuts, files, segments, self._unsynced.seen())

    def flushed(self, plan: FlushPlan) -> None:
        """A plan was run: move the recovery point, unless the log was cut in between."""
        self._unsynced.settle(plan.besides)
        if plan.cuts != self.cuts:
            return
        self.recovery_point = max(self.recovery_point, plan.up_to)
        for segment in plan.segments:
            segment.unsynced = [file for file in segment.unsynced if file not in plan.files]
            if self.failure is None and segment is not self.active and segment in self.segments:
                self.open_segments.touch(segment)

    def flush(self, up_to: int | None = None) -> None:
        """Make all below `up_to` (default: the end) durable. Waits for the disk."""
        plan = self.prepare_flush(up_to)
        if plan is not None:
            plan.run()
            self.flushed(plan)

    def close(self) -> None:
        """Seal, take the producers' snapshot, flush: after this the log opens without recovery. Waits for the disk.

        A log to which nothing came since the last clean end has all that, durable; its indexes are trimmed again.
        """
        self.check_usable()
        if self._unsynced.is_as_found and not self.cuts and self.log_end_offset == self._end_found:
            self.active.seal()
        else:
            self._seal_for_good()
        self.fail(StorageError(f"{self.directory}: closed"))

    def _seal_for_good(self) -> None:
        self.want_producers()
        self.active.seal()
        self.note_unsynced(replay.write_snapshot(self.disk, self.directory, self.log_end_offset, self.producers))
        # The index files of an active segment are not part of a flush plan that has no new records.
        for file in self.active.unsynced:
            file.sync()
        self.flush()

    # -- shrinking ------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Drop every batch that reaches `offset`; returns whether there was any.

        The end is then `offset`, or lower where it lies inside a batch; nothing is left where that is below the start.
        """
        self.check_usable()
        if offset >= self.log_end_offset:
            return False
        last = self.number_of(offset)
        self.load_indexes(self.segments[last])
        place = self.segments[last].find(offset, self.segments[last].read)
        end = offset if place is None else min(offset, place.base_offset)
        if end < self.log_start_offset or offset < self.segments[0].base_offset:
            self.truncate_fully(min(offset, self.log_start_offset))
            return True
        self._rewind(end)
        for segment in reversed(self.segments[last + 1 :]):
            self._drop(segment)
        if len(self.segments) > last + 1:
            del self.segments[last + 1 :]
            self.active = self.segments[last]
            self.open_segments.forget(self.active)
            self.active.activate(self._config)
        self.log_end_offset = self.active.truncate_to(offset)
        self.lost_tails.pop(self.active.base_offset, None)
        self.note_unsynced(self.active.path(layout.LOG))
        self._resize()
        self.epochs.truncate_from_end(self.log_end_offset)
        self._cut_producers()
        self.high_watermark = min(self.high_watermark, self.log_end_offset)
        self.keeper.cut(self, self.log_end_offset)
        return True

    def truncate_fully(self, new_start: int) -> None:
        """Drop everything and start over, empty, at `new_start`."""
        self.check_usable()
        self._rewind(new_start)
        for segment in reversed(self.segments):
            self._drop(segment)
        self.epochs.clear()
        for offset in replay.snapshot_offsets(self.disk, self.directory):
            remove_if_there(self.disk, replay.snapshot_path(self.directory, offset))
        self.producers.replace(())
        self.reload = None
        self.active = Segment.create(self.disk, self.directory, new_start, self._config, self.now_ms)
        self.segments[:] = [self.active]
        self.log_start_offset = self.log_end_offset = self.high_watermark = new_start
        # Nothing above the start is there to be synced; the names are, with the next flush.
        self.recovery_point = min(self.recovery_point, new_start)
        self._resize()
        self.keeper.cut(self, new_start)

    def _rewind(self, offset: int) -> None:
        """Before a cut: let no one read what is about to go, and take the recovery point back."""
        self.cuts += 1
        if offset < self.recovery_point:
            self.recovery_point = offset
            self.keeper.rewinding(self)

    def _drop(self, segment: Segment) -> None:
        self.open_segments.forget(segment)
        self.lost_tails.pop(segment.base_offset, None)
        self.keeper.retired(self, swap.retire(segment, with_snapshot=True))
        self.names_changed()

    def _cut_producers(self) -> None:
        for offset in replay.snapshot_offsets(self.disk, self.directory):
            if offset > self.log_end_offset:
                remove_if_there(self.disk, replay.snapshot_path(self.directory, offset))
                self.names_changed()
        if self.reload is not None or not self.producers.cut(self.log_end_offset):
            start = self.segments[0].base_offset
            self.reload = replay.Reload(self.disk, self.directory, self.segments, start, self.log_end_offset)

    def finish_reload(self, reload: replay.Reload | None) -> None:
        """Take over what was read, unless the log was cut again since."""
        if reload is not None and self.reload is reload:
            self.producers.replace(reload.states.entries.values())
            self.reload = None
            for what in reload.passed_over:
                self.keeper.damaged(self, f"what producers did is not known from {what}")

    def want_producers(self) -> None:
        """Whoever is about to write needs the producers' states: what nobody has read again yet is read now."""
        if self.reload is not None:
            self.reload.run()
            self.finish_reload(self.reload)

    def advance_log_start(self, offset: int) -> bool:
        """Let the log begin at `offset`; whole segments below go with the next retention run.

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

    def hold(self, holder: str, bases: Iterable[int]) -> None:
        """Keep retention away from these segments (a compact lease) until `release_hold`."""
        self._held[holder] = frozenset(bases)

    def release_hold(self, holder: str) -> None:
        self._held.pop(holder, None)

    def delete_old_segments(self, now_ms: int, at_most: int | None = None) -> int:
        """Drop the oldest segments that the topic's retention lets go; returns how many (facts §13).

        Each takes five renames: `at_most` bounds what is done in one go.
        """
        self.check_usable()
        self.now_ms = now_ms
        held = frozenset(base for bases in self._held.values() for base in bases)
        count = retention.deletable(
            [
                retention.candidate(segment, self.end_of(number), is_active=segment is self.active)
                for number, segment in enumerate(self.segments)
            ],
            self._config,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            held=held,
        )
        if at_most is not None:
            count = min(count, at_most)
        if count == len(self.segments):
            self.roll(self.log_end_offset, now_ms)
        if count:
            start = self.segments[count].base_offset
            if start > self.log_start_offset:
                self.log_start_offset = start
                self.epochs.truncate_from_start(start)
            for segment in self.segments[:count]:
                self._drop(segment)
            del self.segments[:count]
            self._resize()
        return count

    def replace_in_row(self, replacements: Sequence[swap.Replacement]) -> None:
        """Put swapped segments in the places of those they replace."""
        gone = {id(segment): replacement for replacement in replacements for segment in replacement.old}
        row: list[Segment] = []
        for segment in self.segments:
            replacement = gone.get(id(segment))
            if replacement is None:
                row.append(segment)
            elif not row or row[-1] is not replacement.new:
                row.append(replacement.new)
            if replacement is not None and replacement.new is not segment:
                self.lost_tails.pop(segment.base_offset, None)
                self.open_segments.forget(segment)
        self.segments[:] = row
        self._resize()

    def moved_to(self, directory: str) -> None:
        """The directory was renamed: go on under its new name. A future log is the replica's own from here on."""
        for segment in self.segments:
            segment.directory = directory
        self.directory = directory
        self.is_future = False
        self._unsynced.moved_to(directory)

    def _resize(self) -> None:
        self.size = sum(segment.size for segment in self.segments)

    def discard(self, why: str) -> None:
        """Let go of all files: the directory is being removed or is offline."""
        self.cuts += 1  # another log may soon have files of these names
        if self.failure is None:
            self.fail(StorageError(f"{self.directory}: {why}"))
        for segment in self.segments:
            self.open_segments.forget(segment)
            segment.release()
