"""Opening a partition's directory: unfinished swaps, damaged tails, lost indexes, epochs and producers (facts §13).

Rule 1: after an unclean shutdown every batch from the segment with the recovery point on is checked, with its CRC. The
log ends before the first wrong byte, and everything that is rebuilt comes from the batches themselves.
Rule 2: everything below the recovery point was synced with its indexes; there only the framing of batches is checked.
Rule 3: `.deleted`, `.cleaned` and `.new` files are removed. A `.swap` is completed, unless a `.cleaned` with a base at
or below its own shows that the swap was not yet decided.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import CorruptData
from logyard.broker.log import checkpoints, layout
from logyard.broker.log.disk.port import Disk, read_whole, remove_if_there, write_whole
from logyard.broker.log.leader_epochs import EpochCache, EpochEntry, EpochRun, reconcile
from logyard.broker.log.producers import ProducerStates
from logyard.broker.log.recovery import epoch_scan, replay
from logyard.broker.log.segment import creation, former, index_builder, scan, swap
from logyard.broker.log.segment.index import AbortedTxn
from logyard.broker.log.segment.segment import Segment
from logyard.broker.model import TopicId
from logyard.broker.records.batch import BatchHeader, crc_matches

Note = Callable[[str], None]


def unheard(_text: str) -> None:
    """Discard a note."""


@dataclass(slots=True)
class LogState:
    """The state of a log read from its directory, from which a PartitionLog is made. The last segment is the active
    one.

    `synced`: all of it, names included, was durable. `is_new`: the directory was just created.
    """

    segments: list[Segment]
    epochs: list[EpochEntry]
    producers: ProducerStates
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    topic_id: TopicId | None
    synced: bool = False
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """The partition's entries in the log directory's checkpoints; `clean` if the last shutdown was.

    `same_boot`: the machine has not restarted since, so every write is there, synced or not.
    """

    recovery_point: int = 0
    log_start_offset: int | None = None
    clean: bool = False
    same_boot: bool = False


def fresh(disk: Disk, directory: str, config: TopicConfig, start_offset: int, now_ms: int) -> LogState:
    """Create a directory with an empty log in it."""
    disk.make_directory(directory)
    segment = creation.create(disk, directory, start_offset, config, now_ms)
    return LogState([segment], [], ProducerStates(), start_offset, start_offset, start_offset, None, is_new=True)


def load(
    disk: Disk,
    directory: str,
    config: TopicConfig,
    known: Checkpointed,
    *,
    now_ms: int,
    note: Note = unheard,
) -> LogState:
    """Open a directory that has (or may have) a log in it.

    Raises DiskError on I/O errors. Damaged data is repaired or cut off, and reported through `note`.
    """
    loader = _Loader(disk, directory, config, known, now_ms, note)
    return loader.load()


class _Loader:
    def __init__(
        self, disk: Disk, directory: str, config: TopicConfig, known: Checkpointed, now_ms: int, note: Note
    ) -> None:
        self.disk, self.directory, self.config = disk, directory, config
        self.known, self.now_ms, self.note = known, now_ms, note
        self.segments: list[Segment] = []
        self.end = 0
        self.epochs = EpochCache(log_end_offset=lambda: self.end)
        self.epochs_on_disk: list[EpochEntry] = []
        self.runs: list[EpochRun] = []
        self.epochs_from = 0  # the offset after the last message of an old format
        self.snapshots: list[int] = []
        self.producers = ProducerStates()

    def load(self) -> LogState:
        if not layout.is_future(self.directory):  # of a copy the mark tells what it is: recovery/moves.py
            remove_if_there(self.disk, f"{self.directory}/{layout.MOVED}")
        swap.finish(self.disk, self.directory, self.note)
        epochs_lost = self.read_epochs()
        self.open_segments()
        clean = self.known.clean and self.find_end()
        if not clean:
            self.recover(self.known.recovery_point)
        self.restart_if_behind()
        log_start = max(self.segments[0].base_offset, self.known.log_start_offset or 0)
        self.settle_epochs(epochs_lost, log_start, clean=clean)
        self.load_producers(log_start, replay_all=clean)
        active = self.segments[-1]
        active.activate(self.config)
        return LogState(
            segments=self.segments,
            epochs=list(self.epochs.entries),
            producers=self.producers,
            log_start_offset=log_start,
            log_end_offset=self.end,
            recovery_point=self.end if clean else min(self.known.recovery_point, self.end),
            topic_id=self.read_topic_id(),
            synced=clean,
        )

    # -- segments -------------------------------------------------------------------------------------------

    def open_segments(self) -> None:
        files = [(path, found) for path, found in swap.segment_files(self.disk, self.directory) if not found.suffix]
        bases = {found.offset for _, found in files if found.kind == layout.LOG}
        aborted = {found.offset for _, found in files if found.kind == layout.TXN_INDEX}
        self.snapshots = [found.offset for _, found in files if found.kind == layout.SNAPSHOT]
        for path, found in files:
            if found.kind != layout.SNAPSHOT and found.offset not in bases:
                self.disk.remove(path)  # an index without its log
        for base in sorted(bases):
            segment = Segment(self.disk, self.directory, base, created_ms=self.now_ms)
            segment.size = self.disk.status(segment.path(layout.LOG)).size
            segment.has_aborted = base in aborted
            self.segments.append(segment)
        if not self.segments:
            self.add_segment(self.known.log_start_offset or 0)

    def add_segment(self, base_offset: int) -> None:
        self.segments.append(creation.create(self.disk, self.directory, base_offset, self.config, self.now_ms))
        self.end = base_offset

    def mend_indexes(self, count: int) -> None:
        """Check the index files of the first `count` segments, all sealed; rebuild those that cannot be right."""
        may_be_lost = not (self.known.clean or self.known.same_boot)
        for number, segment in enumerate(self.segments[:count]):
            try:
                index_builder.glance(segment, after_power_loss=may_be_lost)
            except (CorruptData, FileNotFoundError) as error:
                self.note(f"{segment.path(layout.LOG)}: rebuilding its indexes ({error})")
                index_builder.rebuild(segment, self.config.index_interval_bytes)
            if segment.has_aborted:
                self.mend_aborted(number)

    def mend_aborted(self, number: int) -> None:
        """Read a sealed segment's aborted transactions; rebuild them from the log if the file is damaged."""
        segment, following = self.segments[number], self.segments[number + 1].base_offset
        try:
            if any(not segment.base_offset <= entry.last_offset < following for entry in segment.aborted):
                raise CorruptData("transaction index: an entry lies outside the segment")
        except CorruptData as error:
            self.note(f"{segment.path(layout.TXN_INDEX)}: rebuilding it ({error})")
            base, first = segment.base_offset, self.segments[0].base_offset
            states, snapshot = replay.load_snapshot(self.disk, self.directory, base)
            replay.replay(states, self.segments[:number], first if snapshot is None else snapshot, base)
            segment.replace_aborted(replay.aborted_in(states, segment))
            for file in segment.unsynced:
                file.sync()
            segment.unsynced.clear()
            segment.release()

    # -- the log's end --------------------------------------------------------------------------------------

    def find_end(self) -> bool:
        """After a clean shutdown: find the active segment's end. False if the segment is damaged."""
        active = self.segments[-1]
        try:
            self.mend_indexes(len(self.segments) - 1)
            index_builder.glance(active)
            active.load_indexes()
            _ = active.aborted
            self.end = active.end_offset()
            active.survey_end()
        except (CorruptData, FileNotFoundError) as error:
            self.note(f"{active.path(layout.LOG)}: recovering it although the shutdown was clean ({error})")
            return False
        return True

    def recover(self, recovery_point: int) -> None:
        """Check everything from the segment with the recovery point on, and cut the log at the first wrong byte."""
        first = len(self.segments) - 1
        while first > 0 and self.segments[first].base_offset > recovery_point:
            first -= 1
        suspects = self.segments[first:]
        self.mend_indexes(first)
        self.producers, snapshot = replay.load_snapshot(self.disk, self.directory, suspects[0].base_offset)
        start = self.segments[0].base_offset if snapshot is None else snapshot
        replay.replay(self.producers, self.segments[:first], start, suspects[0].base_offset)
        self.end = suspects[0].base_offset
        for number, segment in enumerate(suspects, start=first):
            if number > first:
                if self.may_have_lost_its_end(number - 1):
                    self.drop_segments(number, "a gap that the loss of power may have made")
                    break
                self.end = max(self.end, segment.base_offset)
                replay.write_snapshot(self.disk, self.directory, segment.base_offset, self.producers)
            if _check_segment(segment, self):
                self.drop_segments(number + 1)
                break
        entries = reconcile(self.epochs.entries, self.runs, suspects[0].base_offset, self.epochs_from)
        self.epochs = EpochCache(entries, log_end_offset=lambda: self.end)

    def may_have_lost_its_end(self, number: int) -> bool:
        """Whether a power loss may have removed the end of the segment of that number, up to which all is checked.

        A follower leaves a hole where it appends over offsets that were compacted away. A process's writes survive its
        end, so a hole is genuine unless the machine restarted and lost pages; in a compacted log it is, unless the
        next segment tells of more than there is. Replicas fetch dropped records again.
        """
        segment, later = self.segments[number], self.segments[number + 1]
        following = later.base_offset
        if following <= self.end:
            return following < self.end
        if following <= (self.known.log_start_offset or 0):
            return False  # what is missing was deleted by its users
        if self.config.compacted:
            return not self.known.same_boot and former.has_lost_its_end(segment, later)
        if self.known.same_boot:
            self.note(
                f"{self.directory}: offsets {self.end} to {following - 1} are missing; the log continues after them"
            )
        return not self.known.same_boot

    def drop_segments(self, first: int, what: str = "a damaged batch") -> None:
        for segment in reversed(self.segments[first:]):
            self.note(f"{segment.path(layout.LOG)}: removed, it follows {what}")
            for kind in layout.SEGMENT_KINDS:
                remove_if_there(self.disk, segment.path(kind))
        del self.segments[first:]

    def restart_if_behind(self) -> None:
        """If the log ends below its start offset (a truncation was lost), start it over there, empty."""
        log_start = self.known.log_start_offset
        if log_start is not None and self.end < log_start:
            self.note(f"{self.directory}: ends at {self.end}, below its start {log_start}; it starts over there")
            self.drop_segments(0)
            self.add_segment(log_start)
            self.producers = ProducerStates()
            self.epochs.clear()
            self.snapshots = []
            for offset in replay.snapshot_offsets(self.disk, self.directory):
                remove_if_there(self.disk, replay.snapshot_path(self.directory, offset))

    # -- epochs, producers, id ------------------------------------------------------------------------------

    def read_epochs(self) -> bool:
        """Read the epoch checkpoint; True if it is unreadable, so that it must be rebuilt from the log."""
        path = f"{self.directory}/{layout.LEADER_EPOCHS}"
        try:
            data = read_whole(self.disk, path)
            if not data:
                raise CorruptData("the file is empty")  # it was renamed into place, and then the power was lost
            entries = checkpoints.decode_epochs(data)
        except FileNotFoundError:
            entries = []
        except CorruptData as error:
            self.note(f"{path}: rebuilding it from the log ({error})")
            return True
        self.epochs_on_disk = entries
        self.epochs = EpochCache(entries, log_end_offset=lambda: self.end)
        return False

    def epochs_from_log(self) -> None:
        self.runs = []
        for segment in self.segments:
            with suppress(CorruptData):
                for _, header in scan.headers(segment.read, 0, segment.size):
                    self.note_epoch(header)
            if segment is not self.segments[-1]:
                segment.release()
        self.epochs = EpochCache(reconcile((), self.runs, 0, self.epochs_from), log_end_offset=lambda: self.end)

    def settle_epochs(self, lost: bool, log_start: int, *, clean: bool) -> None:
        """Limit the epochs to the log's bounds, and write the file if they changed.

        After a clean shutdown the file may keep epochs without records: every load drops them again. Writing the file
        cost two syncs for each empty log, which took most of a start with thousands of them.
        """
        if lost:
            self.epochs_from_log()
        self.epochs.truncate_from_end(self.end)
        self.epochs.truncate_from_start(log_start)
        self.find_older_epochs(log_start)
        entries, on_disk = list(self.epochs.entries), self.epochs_on_disk
        if entries != (on_disk[: len(entries)] if clean and not lost else on_disk):
            path = f"{self.directory}/{layout.LEADER_EPOCHS}"
            write_whole(self.disk, path, checkpoints.encode_epochs(entries))

    def find_older_epochs(self, log_start: int) -> None:
        """Read the epochs below the first known one from the batches: the epochs' cut was durable, the log start's was
        not."""
        known = self.epochs.entries
        oldest = known[0] if known else EpochEntry(epoch_scan.NEWER_THAN_ALL, self.end)
        if oldest.start_offset > log_start:
            found = epoch_scan.down_to(log_start, self.segments, oldest)
            self.epochs.adopt(found + list(known[1:]) if known else found[:-1])

    def note_producer(self, header: BatchHeader, data: memoryview) -> list[AbortedTxn]:
        """Replay one batch into the producer states; returns the transaction it aborted, if any."""
        return replay.take(self.producers, header, data)

    def note_epoch(self, header: BatchHeader) -> None:
        """Record the epoch of a batch; raises CorruptData if it is lower than the one before."""
        epoch = header.partition_leader_epoch
        if header.magic < 2:
            self.epochs_from = header.last_offset + 1
        if epoch < 0:
            return
        if self.runs and epoch == self.runs[-1].epoch and self.runs[-1].first_offset >= self.epochs_from:
            self.runs[-1] = self.runs[-1]._replace(last_offset=header.last_offset)
        elif self.runs and epoch < self.runs[-1].epoch:
            # The batch was cut off by a truncation that was not synced, and lies after batches written over it.
            raise CorruptData(
                f"batch of offset {header.base_offset}: its leader epoch is {epoch}, lower than the one before"
            )
        else:
            self.runs.append(EpochRun(epoch, header.base_offset, header.last_offset))

    def load_producers(self, log_start: int, *, replay_all: bool) -> None:
        """Keep one snapshot per segment and one at the end; after a clean shutdown, load the states from them."""
        bases = {segment.base_offset for segment in self.segments}
        kept: list[int] = []
        # A recovery may have removed some of the snapshots that were listed at first.
        for offset in self.snapshots if replay_all else replay.snapshot_offsets(self.disk, self.directory):
            if (offset not in bases and offset != self.end) or offset > self.end:
                remove_if_there(self.disk, replay.snapshot_path(self.directory, offset))
            else:
                kept.append(offset)
        if replay_all:
            self.producers = replay.rebuild(self.disk, self.directory, self.segments, log_start, self.end, kept)

    def read_topic_id(self) -> TopicId | None:
        path = f"{self.directory}/{layout.PARTITION_METADATA}"
        try:
            return checkpoints.decode_partition_metadata(read_whole(self.disk, path))
        except FileNotFoundError:
            return None
        except CorruptData as error:
            self.note(f"{path}: ignored ({error})")
            return None


def _check_segment(segment: Segment, loader: _Loader) -> bool:
    """Check one segment batch by batch and rebuild its indexes, epochs and producers; True if its tail was cut off."""
    segment.file = segment.disk.open(segment.path(layout.LOG), write=True)
    indexer = index_builder.BatchIndexer(segment, loader.config.index_interval_bytes)
    aborted: list[AbortedTxn] = []
    end = 0
    why = ""
    try:
        for position, header, data in scan.batches(segment.file, 0, segment.size):
            if header.base_offset < loader.end or header.last_offset_delta < 0:
                raise CorruptData(f"batch at {position}: offset {header.base_offset} where {loader.end} is next")
            if not crc_matches(data, 0, header):
                raise CorruptData(f"batch at {position}: its CRC is wrong")
            loader.note_epoch(header)
            if header.producer_id >= 0:
                aborted += loader.note_producer(header, data)
            indexer.add(position, header)
            loader.end = header.last_offset + 1
            end = position + header.length
    except CorruptData as error:
        why = str(error)
    cut = segment.size - end
    if cut:
        loader.note(f"{segment.path(layout.LOG)}: {cut} bytes cut off at offset {loader.end} ({why})")
        segment.file.truncate(end)
        segment.size = end
    segment.replace_aborted(aborted)
    if segment is not loader.segments[-1]:
        indexer.close()
        for file in segment.write_indexes():
            file.sync()
        segment.release()
    return cut > 0
