"""One replica's log: what is appended to it, what is read from it, what others may take from it and put into it.

The segments under it, and how they grow and shrink, are segmented.py's.
"""

from collections.abc import Callable, Iterable, Sequence

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ApiError, CorruptData, ErrorCode, StorageError
from logyard.broker.log import layout, validation
from logyard.broker.log.append import (
    NO_TIME,
    Admission,
    AppendInfo,
    Chunk,
    Staged,
    admit_for_leader,
    admit_from_leader,
)
from logyard.broker.log.disk.port import Disk
from logyard.broker.log.fetch import LogSlice, Span, Wanted, locate
from logyard.broker.log.keeping import LogKeeper, SegmentInfo, segment_info
from logyard.broker.log.producers import Origin as Origin
from logyard.broker.log.producers import SeenBatch
from logyard.broker.log.recovery import recovery
from logyard.broker.log.segment import index_builder, scan, swap, timestamps
from logyard.broker.log.segment.index import AbortedTxn
from logyard.broker.log.segment.open_segments import OpenSegments
from logyard.broker.log.segment.segment import Segment
from logyard.broker.log.segmented import SegmentedLog
from logyard.broker.model import TopicPartition
from logyard.broker.records.batch import HEADER_SIZE, Bounds, parse_header

NOTHING = Span(0, 0)

Found = tuple[int, int, int]


class PartitionLog(SegmentedLog):
    """The log of one replica, for the one thread that owns it (the event loop); see `SegmentedLog` for its fields."""

    @classmethod
    def create(
        cls,
        disk: Disk,
        tp: TopicPartition,
        directory: str,
        config: TopicConfig,
        *,
        now_ms: int,
        start_offset: int = 0,
        keeper: LogKeeper | None = None,
        open_segments: OpenSegments | None = None,
        is_future: bool = False,
        validate_records: bool = False,
    ) -> "PartitionLog":
        """Make a new, empty log in a directory of its own, which is made as well."""
        return cls(
            disk,
            tp,
            directory,
            config,
            recovery.fresh(disk, directory, config, start_offset, now_ms),
            now_ms=now_ms,
            keeper=keeper,
            open_segments=open_segments,
            is_future=is_future,
            is_new=True,
            validate_records=validate_records,
        )

    # -- appending ------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        batches: memoryview,
        leader_epoch: int,
        *,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        opened: Bounds | None = None,
    ) -> AppendInfo:
        """Check, number, stamp (in place, in `batches`) and write what a client or coordinator sent.

        `opened` are the bounds by which the batches were opened in a thread; where those are not the log's any more,
        or there are none, they are opened here. Raises ApiError as `admit_for_leader` and `opening.opened` say. The
        log is not changed then.
        """
        self.check_usable()
        self.now_ms = now_ms
        if self.reload is not None:
            self.want_producers()
        bounds = self.bounds
        by_client = origin is Origin.CLIENT
        if (by_client or bounds.recoding is not None) and opened != bounds:
            batches = validation.opened(batches, bounds, now_ms, from_client=by_client)
        admission = Admission(self.log_end_offset, self.config, self.bounds, self.producers)
        chunk = admit_for_leader(batches, admission, leader_epoch, now_ms, origin)
        if isinstance(chunk, SeenBatch):
            return AppendInfo(
                chunk.first_offset, chunk.last_offset, chunk.timestamp, chunk.timestamp, self.log_start_offset, 0, True
            )
        self._write(chunk, now_ms)
        return AppendInfo(
            chunk.first_offset,
            chunk.last_offset,
            chunk.max_timestamp,
            now_ms if self.bounds.log_append_time else NO_TIME,
            self.log_start_offset,
            len(batches),
        )

    def opener(
        self, batches: memoryview, now_ms: int, opened: Bounds | None, *, always: bool = False
    ) -> tuple[Callable[[memoryview], memoryview], Bounds] | None:
        """What to do with these batches in a thread before they are appended, and the bounds to say that it was done.

        None where that would not take long (but see `always`), or was done by the same bounds. See `opening.opener`.
        """
        work = None if opened == self.bounds else validation.opener(batches, self.bounds, now_ms, always=always)
        return None if work is None else (work, self.bounds)

    def append_as_follower(self, data: memoryview, *, now_ms: int | None = None) -> AppendInfo:
        """Write what was fetched from the leader, as it is; a batch cut short at the end is left out.

        Raises ApiError: CORRUPT_MESSAGE, or OFFSET_OUT_OF_RANGE where it does not follow the log's end.
        """
        self.check_usable()
        if now_ms is not None:
            self.now_ms = now_ms
        self.want_producers()
        self._make_room_before(data)
        admission = Admission(self.log_end_offset, self.config, self.bounds, self.producers)
        chunks, size = admit_from_leader(data, admission, self.config.segment_bytes)
        for chunk in chunks:
            self._write(chunk, self.now_ms)
        first = chunks[0].first_offset if chunks else self.log_end_offset
        latest = max((chunk.max_timestamp for chunk in chunks), default=NO_TIME)
        return AppendInfo(first, self.log_end_offset - 1, latest, NO_TIME, self.log_start_offset, size)

    def _make_room_before(self, data: memoryview) -> None:
        """Start an empty log with the leader's first batch where its own start lies inside it (DeleteRecords)."""
        if self.log_end_offset != self.log_start_offset or len(data) < HEADER_SIZE:
            return
        try:
            first = parse_header(data)
        except CorruptData as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{self.tp}: {error}") from None
        if first.base_offset < self.log_end_offset <= first.last_offset:
            log_start = self.log_start_offset
            self.truncate_fully(first.base_offset)
            self.log_start_offset = log_start

    def _write(self, chunk: Chunk, now_ms: int) -> None:
        config = self.config
        segment = self.active
        size = len(chunk.data)
        if (
            segment.size
            and (
                segment.size + size > config.segment_bytes
                or segment.is_index_full
                or segment.is_over_age(chunk.max_timestamp, now_ms, config)
            )
        ) or not segment.fits(chunk.last_offset):
            segment = self.roll(chunk.first_offset, now_ms)
        if chunk.has_old:
            self.epochs.clear()
        latest = self.epochs.latest
        for epoch, start in chunk.epochs:
            if latest is None or epoch > latest:
                self.epochs.assign(epoch, start)
                latest = epoch
        segment.append(
            chunk.data,
            chunk.first_offset,
            chunk.last_offset,
            chunk.max_timestamp,
            chunk.timestamp_offset,
            config.index_interval_bytes,
        )
        self.size += size
        self.log_end_offset = chunk.last_offset + 1
        if chunk.producers is not None:
            self._remember(chunk.producers)
        if self.owes_sync:
            # The topic asks that what is acknowledged be synced, and everybody waits for it.
            self.flush()

    @property
    def owes_sync(self) -> bool:
        """Whether as many records are unsynced as `flush.messages` allows at most before they are acknowledged."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    def _remember(self, staged: Staged) -> None:
        for entry in staged.entries.values():
            self.producers.remember(entry)
        # What ends later in this chunk was still open when an earlier one ended: a search for aborted transactions goes
        # on from there.
        open_from = [done.first_offset for done in staged.completed]
        for number in reversed(range(len(open_from) - 1)):
            open_from[number] = min(open_from[number], open_from[number + 1])
        for number, done in enumerate(staged.completed, start=1):
            stable = min([self.producers.stable_offset_after(done), *open_from[number : number + 1]])
            if done.aborted:
                self.active.note_aborted(AbortedTxn(done.producer_id, done.first_offset, done.last_offset, stable))
                self.names_changed()
            if done.last_offset >= self.high_watermark:
                self.producers.remember_completed(done)

    # -- reading --------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, limit_offset: int, min_one: bool) -> LogSlice:
        """Find whole batches from the one that holds `offset` on, all below `limit_offset`, in one segment.

        At most `max_bytes`; with `min_one` at least one batch, if there is one below the limit.
        Raises ApiError(OFFSET_OUT_OF_RANGE).
        """
        self.check_usable()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.tp}: offset {offset} is not within {self.log_start_offset} and {self.log_end_offset}",
            )
        number = self.number_of(offset) if offset < limit_offset else len(self.segments)
        while number < len(self.segments):
            segment = self.segments[number]
            wanted = Wanted(offset, max_bytes, self._limit_in(number, limit_offset), min_one)
            try:
                if segment is not self.active:
                    self.open_segments.touch(segment)
                    if not segment.indexes_loaded:
                        return self._cold_slice(number, wanted, limit_offset)
                span = locate(segment, segment.size, wanted, segment.read_nowait)
                if span is not None:
                    return LogSlice(segment.log_file(), span, size=span.size, cuts=self.count_cuts)
            except scan.NotCached:
                return self._cold_slice(number, wanted, limit_offset)
            except scan.CutShort as error:
                if segment is self.active:
                    raise StorageError(f"{segment.path(layout.LOG)}: {error}") from error
                self.lost_tail(segment, offset, error)
            except (CorruptData, FileNotFoundError) as error:
                raise StorageError(f"{segment.path(layout.LOG)}: {error}") from error
            number += 1
        return LogSlice(None, NOTHING, size=0, cuts=self.count_cuts)

    def _cold_slice(self, number: int, wanted: Wanted, limit_offset: int) -> LogSlice:
        """A slice that is looked up when it is loaded, from the segments as they are now."""
        first = self.segments[number]
        first.log_file()  # opened now, so that retention cannot take it away
        first = first.reader()
        behind, end, cuts = self.segments[number + 1 :], self.log_end_offset, self.cuts
        active_size = self.active.size

        def resolve() -> tuple[Segment, Span] | None:
            reader, size = first, first.size
            for at in range(len(behind) + 1):
                if at:
                    size = active_size if at == len(behind) else behind[at - 1].size
                    reader = behind[at - 1].reader()
                    if self.cuts != cuts:
                        return None  # or it would be known as it is after the cut
                index_builder.look_into(reader, self.config.index_interval_bytes)
                reaches = behind[at].base_offset if at < len(behind) else end
                question = wanted._replace(limit_offset=None if limit_offset >= reaches else limit_offset)
                try:
                    span = locate(reader, size, question, reader.read)
                except scan.CutShort as error:
                    if at == len(behind) or self.cuts != cuts:
                        raise
                    self.lost_tail(reader, wanted.offset, error)
                    continue
                if span is not None:
                    return reader, span
            return None

        return LogSlice(None, None, size=min(wanted.max_bytes, first.size), cuts=self.count_cuts, resolve=resolve)

    def _limit_in(self, number: int, limit_offset: int) -> int | None:
        """The limit, or None where the whole segment lies below it."""
        return None if limit_offset >= self.end_of(number) else limit_offset

    def timestamp_search(self, timestamp: int) -> Callable[[], Found | None]:
        """Return what finds (timestamp, offset, leader epoch or -1) of the first record that is not older.

        It waits for the disk, and may be called in a thread while the log goes on; it raises StorageError then, and
        ApiError(NOT_LEADER_OR_FOLLOWER) where the log was cut or compacted meanwhile: ask again.
        """
        self.check_usable()
        candidates = [segment for segment in self.segments if segment.max_timestamp >= timestamp]
        for segment in candidates[:1]:
            if segment is not self.active:
                self.open_segments.touch(segment)
        cuts = self.cuts

        def search() -> Found | None:
            for segment in candidates:
                found = epoch = None
                try:
                    reader = segment.reader()
                    if self.cuts == cuts:
                        index_builder.look_into(reader, self.config.index_interval_bytes)
                        found = timestamps.first_in_segment(reader, timestamp, self.log_start_offset)
                        epoch = None if found is None else self.epochs.epoch_of(found[1])
                except (CorruptData, FileNotFoundError) as error:
                    # A closed segment that lost its tail has no such record: `read` tells.
                    is_short = isinstance(error, scan.CutShort) and segment is not self.active
                    if not is_short and self.cuts == cuts and segment in self.segments:
                        raise StorageError(f"{self.directory}: {error}") from error
                    # else retention took it away meanwhile
                if self.cuts != cuts:
                    raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.tp}: the log was cut meanwhile")
                if found is not None:
                    return *found, -1 if epoch is None else epoch
            return None

        return search

    def max_timestamp_search(self) -> Callable[[], Found | None]:
        """Return what finds the same of the first record with the largest timestamp of the log."""
        largest = max(segment.max_timestamp for segment in self.segments)
        return self.timestamp_search(largest) if largest >= 0 else lambda: None

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTxn]:
        """Return the aborted transactions that touch offsets from `start` to below `end`."""
        return timestamps.aborted_between(self.segments[self.number_of(start) :], start, end)

    # -- leases and replacements ----------------------------------------------------------------------------

    def closed_segments(self) -> list[SegmentInfo]:
        """Describe every segment but the active one, in order. Reads the ends of the log files."""
        found = []
        for segment in self.segments[:-1]:
            was_open = segment.indexes_loaded
            self.load_indexes(segment)
            found.append(segment_info(segment, segment.end_offset(), is_active=False))
            if not was_open:
                segment.release()
        return found

    def active_segment(self) -> SegmentInfo:
        """Describe the active segment: its size now counts whole batches, whatever is appended later."""
        return segment_info(self.active, self.log_end_offset, is_active=True)

    def link_segments(self, into_directory: str, bases: Iterable[int]) -> None:
        """Hard-link the files of these segments into a directory under their own names; of an active one the log alone.

        Raises KeyError for a base that is no segment's.
        """
        by_base = {segment.base_offset: segment for segment in self.segments}
        for base in bases:
            segment = by_base[base]
            kinds = [layout.LOG] if segment is self.active else swap.kinds_of(segment)
            for kind in kinds:
                self.disk.link(segment.path(kind), f"{into_directory}/{layout.file_name(base, kind)}")

    def prepare_replacement(
        self, new_files: Sequence[str], old_bases: Sequence[Sequence[int]]
    ) -> list[swap.Replacement]:
        """Check replacement logs and lay them out beside what they replace: `swap.prepare` says how.

        Waits for the disk; may run in a thread while the log goes on.
        """
        return swap.prepare(self.segments[:-1], new_files, old_bases, self.config.index_interval_bytes)

    def swap_in(self, replacements: Sequence[swap.Replacement]) -> None:
        """Put prepared replacements in place: renames alone, so that the loop is not held up.

        Durable with the directory's next sync. Raises BadPart, with nothing changed, where a replaced segment is not
        in the log any more.
        """
        self.check_usable()
        if not replacements:
            return
        if self.is_moving:
            swap.withdraw(replacements)
            raise swap.BadPart(replacements[0].new.base_offset, "the replica is moving to another log directory")
        present = {id(segment) for segment in self.segments[:-1]}
        for replacement in replacements:
            if not all(id(segment) in present for segment in replacement.old):
                swap.withdraw(replacements)
                raise swap.BadPart(replacement.new.base_offset, "the log was cut since: what it replaces is gone")
        self.cuts += 1  # first: from here on the names of the old files are those of others
        swap.decide(replacements)
        retired = swap.complete(replacements)
        self.replace_in_row(replacements)
        self.names_changed()
        self.keeper.retired(self, retired)

    def replace_segments(self, new_files: Sequence[str], old_bases: Sequence[Sequence[int]]) -> None:
        """Replace closed segments by rewritten ones: `prepare_replacement` and `swap_in` in one. Waits for the disk.

        `new_files[i]` is the path of a whole log file that stands for the adjacent closed segments `old_bases[i]`.
        """
        self.swap_in(self.prepare_replacement(new_files, old_bases))
        self.disk.sync_directory(self.directory)
