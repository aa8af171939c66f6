"""Producer states from files: the latest valid snapshot, and the batches after it."""

from collections.abc import Sequence

from logyard.broker.errors import CorruptData
from logyard.broker.log import layout
from logyard.broker.log.append import Staged
from logyard.broker.log.disk.port import Disk, read_whole, remove_if_there, write_whole
from logyard.broker.log.producers import Origin, ProducerEntry, ProducerStates, decode_snapshot, encode_snapshot
from logyard.broker.log.segment import scan
from logyard.broker.log.segment.index import AbortedTxn
from logyard.broker.log.segment.segment import Segment
from logyard.broker.records.batch import BatchHeader


def snapshot_path(directory: str, offset: int) -> str:
    """Return the path of the snapshot of everything below `offset`."""
    return f"{directory}/{layout.file_name(offset, layout.SNAPSHOT)}"


def snapshot_offsets(disk: Disk, directory: str) -> list[int]:
    """Return the offsets of the snapshots in a directory, ascending."""
    parsed = (layout.parse_file_name(entry.name) for entry in disk.list(directory))
    return [found.offset for found in parsed if found and found.kind == layout.SNAPSHOT and not found.suffix]


def write_snapshot(disk: Disk, directory: str, offset: int, states: ProducerStates) -> str:
    """Write the snapshot of everything below `offset`, without a sync; returns its path."""
    path = snapshot_path(directory, offset)
    write_whole(disk, path, encode_snapshot(states.entries.values()), sync=False)
    return path


def load_snapshot(
    disk: Disk, directory: str, up_to: int, offsets: Sequence[int] | None = None
) -> tuple[ProducerStates, int | None]:
    """Read the latest valid snapshot at or below `up_to`; corrupt ones that are found are removed.

    Returns the states and the snapshot's offset, None if there is no snapshot. `offsets` are those of the snapshots in
    the directory, ascending, if the caller knows them.
    """
    for offset in reversed(snapshot_offsets(disk, directory) if offsets is None else offsets):
        if offset > up_to:
            continue
        path = snapshot_path(directory, offset)
        try:
            return ProducerStates(decode_snapshot(read_whole(disk, path))), offset
        except CorruptData:
            remove_if_there(disk, path)
    return ProducerStates(), None


def replay(
    states: ProducerStates,
    segments: Sequence[Segment],
    start: int,
    end: int,
    passed_over: list[str] | None = None,
) -> None:
    """Bring the states from offset `start` to `end` by the batches in between.

    Raises CorruptData if a batch does not parse. With `passed_over`, damaged and missing segments are skipped instead,
    and described in that list.
    """
    for number, segment in enumerate(segments):
        behind = segments[number + 1].base_offset if number + 1 < len(segments) else end
        if behind <= start or segment.base_offset >= end or segment.size == 0:
            continue
        try:
            _replay_segment(states, segment, start, end)
        except (CorruptData, FileNotFoundError) as error:
            # A closed segment may have lost its tail; the segments after it still count.
            if passed_over is not None:
                passed_over.append(f"{layout.file_name(segment.base_offset, layout.LOG)}: {error}")
            elif not isinstance(error, scan.CutShort):
                raise
        if number + 1 < len(segments):
            segment.release()


def _replay_segment(states: ProducerStates, segment: Segment, start: int, end: int) -> None:
    position = _position_of(segment, start) if segment.base_offset < start else 0
    for at, header in scan.headers(segment.read, position, segment.size):
        if header.last_offset < start or header.producer_id < 0:
            continue
        if header.base_offset >= end:
            break
        # Only the records of markers are needed.
        batch = memoryview(segment.read(header.length, at) if header.is_control else b"")
        take(states, header, batch)


def _position_of(segment: Segment, start: int) -> int:
    try:
        return segment.index.floor(start)
    except (CorruptData, FileNotFoundError):
        return 0  # its index is damaged; whoever reads the segment rebuilds it


class Reload:
    """The producers' states after a truncation, read from a snapshot and the log, or cut where that suffices.

    Created on the log's own thread; `run` waits for the disk, and may be called in another thread while the log is
    read. Segments that are damaged, or deleted by retention meanwhile, are skipped and listed in `passed_over`:
    forgetting a producer is better than a log that can never be written to again.

    `known` has the states as they were before the truncation. `is_awaited`: a thread runs it, or will, so that nobody
    need do so on the event loop.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segments: Sequence[Segment],
        log_start: int,
        end: int,
        known: Sequence[ProducerEntry] | None = None,
    ) -> None:
        self._disk, self._directory = disk, directory
        self._segments = [segment.reader() for segment in segments]
        self._log_start, self._end = log_start, end
        self.known = known
        self.states = ProducerStates()
        self.passed_over: list[str] = []
        self.is_awaited = False

    def run(self) -> None:
        """Find the states; raises DiskError."""
        if self.known is not None:
            cut = ProducerStates(self.known)
            if cut.cut(self._end):
                self.states = cut
                return
        passed_over: list[str] = []
        states, offset = load_snapshot(self._disk, self._directory, self._end)
        replay(states, self._segments, self._log_start if offset is None else offset, self._end, passed_over)
        self.states, self.passed_over = states, passed_over


def take(states: ProducerStates, header: BatchHeader, batch: memoryview) -> list[AbortedTxn]:
    """Replay one batch; `batch` has its bytes if it is a marker. Returns the transaction it aborted, if any."""
    staged = Staged(states)
    staged.take(header, batch, header.base_offset, Origin.LEADER, header.max_timestamp)
    for entry in staged.entries.values():
        states.remember(entry)
    return [
        AbortedTxn(done.producer_id, done.first_offset, done.last_offset, states.stable_offset_after(done))
        for done in staged.completed
        if done.aborted
    ]


def aborted_in(states: ProducerStates, segment: Segment) -> list[AbortedTxn]:
    """Return the transactions aborted in a segment, given the states before it; the states advance to its end."""
    aborted: list[AbortedTxn] = []
    for at, header in scan.headers(segment.read, 0, segment.size):
        if header.producer_id >= 0:
            batch = memoryview(segment.read(header.length, at) if header.is_control else b"")
            aborted += take(states, header, batch)
    return aborted


def rebuild(
    disk: Disk,
    directory: str,
    segments: Sequence[Segment],
    log_start: int,
    end: int,
    snapshots: Sequence[int] | None = None,
) -> ProducerStates:
    """Return the producer states at `end`, from the latest snapshot (see `load_snapshot`) and the log."""
    states, offset = load_snapshot(disk, directory, end, snapshots)
    replay(states, segments, log_start if offset is None else offset, end)
    return states
