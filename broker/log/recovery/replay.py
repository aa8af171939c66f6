"""Producer states from files: the latest snapshot that is sound, and the batches behind it."""

from collections.abc import Sequence

from logyard.broker.errors import CorruptData
from logyard.broker.log import layout
from logyard.broker.log.append import Staged
from logyard.broker.log.disk.port import Disk, read_whole, remove_if_there, write_whole
from logyard.broker.log.producers import Origin, ProducerStates, decode_snapshot, encode_snapshot
from logyard.broker.log.segment import scan
from logyard.broker.log.segment.index import AbortedTxn
from logyard.broker.log.segment.segment import Segment
from logyard.broker.records.batch import BatchHeader


def snapshot_path(directory: str, offset: int) -> str:
    """Return the path of the snapshot of all below `offset`."""
    return f"{directory}/{layout.file_name(offset, layout.SNAPSHOT)}"


def snapshot_offsets(disk: Disk, directory: str) -> list[int]:
    """Return the offsets there are snapshots of, ascending."""
    parsed = (layout.parse_file_name(entry.name) for entry in disk.list(directory))
    return [found.offset for found in parsed if found and found.kind == layout.SNAPSHOT and not found.suffix]


def write_snapshot(disk: Disk, directory: str, offset: int, states: ProducerStates) -> str:
    """Write the snapshot of all below `offset`, not synced yet; returns its path."""
    path = snapshot_path(directory, offset)
    write_whole(disk, path, encode_snapshot(states.entries.values()), sync=False)
    return path


def load_snapshot(
    disk: Disk, directory: str, up_to: int, offsets: Sequence[int] | None = None
) -> tuple[ProducerStates, int | None]:
    """Read the latest sound snapshot at or below `up_to`; corrupt ones on the way are removed.

    Returns the states and the snapshot's offset, None where there is none. `offsets` are those there are, ascending,
    where the caller knows them already.
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

    Raises CorruptData where a batch does not parse; with `passed_over` that is said there, as is a segment that is
    gone, and the next one counts.
    """
    for number, segment in enumerate(segments):
        behind = segments[number + 1].base_offset if number + 1 < len(segments) else end
        if behind <= start or segment.base_offset >= end or segment.size == 0:
            continue
        try:
            _replay_segment(states, segment, start, end)
        except (CorruptData, FileNotFoundError) as error:
            # A closed segment that lost its tail is no trouble: what comes behind it counts.
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
        # Only markers have to be opened.
        batch = memoryview(segment.read(header.length, at) if header.is_control else b"")
        take(states, header, batch)


def _position_of(segment: Segment, start: int) -> int:
    try:
        return segment.index.floor(start)
    except (CorruptData, FileNotFoundError):
        return 0  # its index is damaged: whoever needs it makes it again


class Reload:
    """What a truncation takes back of the producers' states, found again from a snapshot and the log.

    Made on the log's own thread; `run` waits for the disk, and may be called in another while the log is read. What
    is damaged, or taken away by retention meanwhile, is `passed_over`: a log that cannot be written to for ever after
    would be worse than a producer that is not remembered.
    """

    def __init__(self, disk: Disk, directory: str, segments: Sequence[Segment], log_start: int, end: int) -> None:
        self._disk, self._directory = disk, directory
        self._segments = [segment.reader() for segment in segments]
        self._log_start, self._end = log_start, end
        self.states = ProducerStates()
        self.passed_over: list[str] = []

    def run(self) -> None:
        """Read; raises DiskError."""
        passed_over: list[str] = []
        states, offset = load_snapshot(self._disk, self._directory, self._end)
        replay(states, self._segments, self._log_start if offset is None else offset, self._end, passed_over)
        self.states, self.passed_over = states, passed_over


def take(states: ProducerStates, header: BatchHeader, batch: memoryview) -> list[AbortedTxn]:
    """Follow one batch of the log, a marker opened; returns the transaction it aborted, if it did."""
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
    """Return the transactions aborted in a segment, given the states before it; the states follow."""
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
    """Return the producer states at `end` from the latest snapshot (see `load_snapshot`) and the log."""
    states, offset = load_snapshot(disk, directory, end, snapshots)
    replay(states, segments, log_start if offset is None else offset, end)
    return states
