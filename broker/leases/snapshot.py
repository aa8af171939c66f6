"""What a lease covers: a log at one moment, read on the event loop, and hard links to it, made in a thread.

Rule 1: everything that can change is read at one moment (`LogSnapshot.of`, no waiting); sealed files do not change, so
their sizes and last offsets are read later, from the links.
Rule 2: between that moment and the links a segment may be deleted (retention) or bytes removed (truncation, a swap).
Then linking fails, or `LogSnapshot.is_current` is false, and the lease is tried again.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from logyard.broker.errors import CorruptData
from logyard.broker.leases.book import Purpose
from logyard.broker.leases.cleanable import cleanable_end_of
from logyard.broker.log import layout
from logyard.broker.log.disk.port import Disk, read_whole
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.log.producers import ProducerEntry
from logyard.broker.log.segment import scan
from logyard.broker.log.segment.index import OFFSET_ENTRY_SIZE, AbortedTxn, decode_aborted
from logyard.broker.model import topic_id_text
from logyard.broker.records import pauses

INDEXED = {"log": layout.LOG, "index": layout.INDEX, "timeindex": layout.TIME_INDEX, "txnindex": layout.TXN_INDEX}
# What an audit looks at as well: the producer snapshot at a segment's base, and with the active segment the
# partition's leader epochs, under a name that is the lease's own.
FILES = INDEXED | {"snapshot": layout.SNAPSHOT, "epochs": ".epochs"}
LEASE_FILE = "lease.json"


class SegmentSnapshot(NamedTuple):
    """One segment at that moment; `end_offset` is the next segment's base, for the active one the log's end."""

    base_offset: int
    end_offset: int
    size: int
    max_timestamp: int
    is_active: bool
    has_aborted: bool
    is_audited: bool


class LeasedSegment(NamedTuple):
    """One leased segment: `files` gives sizes by the contract's names; `inode` and `mtime_ms` are the log file's."""

    base_offset: int
    last_offset: int
    size: int
    max_timestamp: int
    mtime_ms: int
    inode: int
    is_active: bool
    files: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        return {
            "base_offset": self.base_offset,
            "last_offset": self.last_offset,
            "size": self.size,
            "max_timestamp": self.max_timestamp,
            "mtime_ms": self.mtime_ms,
            "active": self.is_active,
            "files": self.files,
        }


class LogSnapshot(NamedTuple):
    """A log at one moment, and what a lease granted then covers. `cuts` tells whether bytes were removed since.

    `producers` are all of the log, as values that do not change: `producers_of` makes an answer of them in a thread.
    """

    directory: str
    cuts: int
    end_offset: int
    segments: list[SegmentSnapshot]
    active_aborted: list[AbortedTxn]
    producers: list[ProducerEntry]
    fields: dict[str, Any]

    @classmethod
    def of(cls, log: PartitionLog, purpose: Purpose, clean_offset: int, now_ms: int) -> "LogSnapshot":
        """Read a log for a lease; `clean_offset` is within its bounds. Does not wait."""
        compacting = purpose is Purpose.COMPACT
        end_offset = cleanable_end_of(log, clean_offset, now_ms) if compacting else log.high_watermark
        segments = [
            SegmentSnapshot(
                segment.base_offset,
                log.end_of(number),
                segment.size,
                segment.max_timestamp,
                segment is log.segments.active,
                segment.has_aborted,
                purpose is Purpose.AUDIT,
            )
            for number, segment in enumerate(log.segments)
            if not compacting or (segment is not log.segments.active and segment.base_offset < end_offset)
        ]
        fields = offsets_of(log, clean_offset) | {
            "first_dirty_at_ms": first_dirty_at(log, clean_offset),
            "config": config_of(log),
        }
        aborted, producers = list(log.segments.active.aborted), list(log.producers.entries.values())
        return cls(log.directory, log.segments.cuts, end_offset, segments, aborted, producers, fields)

    def is_current(self, log: PartitionLog) -> bool:
        """Whether the log has lost no bytes since the snapshot, and is where it was."""
        return log.segments.cuts == self.cuts and log.directory == self.directory


def first_dirty_at(log: PartitionLog, clean_offset: int) -> int:
    """Return the smallest positive timestamp of the segments that reach above `clean_offset`, -1 if there is none."""
    stamps = (s.max_timestamp for number, s in enumerate(log.segments) if log.end_of(number) > clean_offset)
    return min((stamp for stamp in stamps if stamp > 0), default=-1)


def offsets_of(log: PartitionLog, clean_offset: int) -> dict[str, Any]:
    """Return the offsets and epochs that both a lease and a status show."""
    return {
        "topic_id": None if log.topic_id is None else topic_id_text(log.topic_id),
        "log_start_offset": log.log_start_offset,
        "log_end_offset": log.log_end_offset,
        "high_watermark": log.high_watermark,
        "last_stable_offset": log.last_stable_offset,
        "recovery_point": log.recovery_point,
        "clean_offset": clean_offset,
        "directory": log.directory,
        "leader_epochs": [[entry.epoch, entry.start_offset] for entry in log.epochs.entries],
    }


def config_of(log: PartitionLog) -> dict[str, Any]:
    """Return the settings that a compaction uses, under Kafka's keys."""
    config = log.config
    return {
        "cleanup.policy": ",".join(sorted(config.cleanup_policy)),
        "segment.bytes": config.segment_bytes,
        "segment.index.bytes": config.segment_index_bytes,
        "index.interval.bytes": config.index_interval_bytes,
        "min.compaction.lag.ms": config.min_compaction_lag_ms,
        "max.compaction.lag.ms": config.max_compaction_lag_ms,
        "min.cleanable.dirty.ratio": config.min_cleanable_dirty_ratio,
        "delete.retention.ms": config.delete_retention_ms,
        "max.message.bytes": config.max_message_bytes,
        "message.timestamp.type": config.message_timestamp_type,
    }


# In a thread


def producers_of(snapshot: LogSnapshot) -> list[dict[str, int]]:
    """Return the state of every producer at the end of the log. There may be hundreds of thousands: it pauses."""
    return list(map(_producer, pauses.PausingList(snapshot.producers)))


def _producer(entry: ProducerEntry) -> dict[str, int]:
    return {
        "producer_id": entry.producer_id,
        "producer_epoch": entry.epoch,
        "last_sequence": entry.last_sequence,
        "last_offset": entry.last_offset,
        "last_timestamp": entry.last_timestamp,
        "coordinator_epoch": entry.coordinator_epoch,
        "current_txn_first_offset": entry.txn_first_offset,
    }


def link(disk: Disk, snapshot: LogSnapshot, lease_directory: str) -> tuple[list[LeasedSegment], list[AbortedTxn]]:
    """Create a lease's directory with its links; returns the segments and their aborted transactions by last offset.

    Waits for the disk. Raises FileNotFoundError if a segment was deleted in the meantime, and DiskError.
    """
    links = f"{lease_directory}/links"
    # `within`: never create the replica's own directory again, where it would block the next topic of that name.
    disk.make_directory(links, within=snapshot.directory)
    disk.make_directory(f"{lease_directory}/parts", within=snapshot.directory)
    leased: list[LeasedSegment] = []
    aborted: list[AbortedTxn] = []
    for segment in snapshot.segments:
        leased.append(_link_segment(disk, snapshot.directory, links, segment))
        if leased[-1].files.get("txnindex"):
            aborted += _aborted_in(disk, links, segment.base_offset)
    return leased, sorted([*aborted, *snapshot.active_aborted], key=lambda entry: entry.last_offset)


def _link_segment(disk: Disk, directory: str, links: str, segment: SegmentSnapshot) -> LeasedSegment:
    files: dict[str, int] = {}
    for name, kind in INDEXED.items():
        if segment.is_active and kind != layout.LOG:
            continue
        if kind == layout.TXN_INDEX and not segment.has_aborted:
            files[name] = 0
            continue
        path = f"{links}/{layout.file_name(segment.base_offset, kind)}"
        try:
            disk.link(f"{directory}/{layout.file_name(segment.base_offset, kind)}", path)
        except FileNotFoundError:
            # An audit reports a lost index; without its log file the segment itself is gone.
            if kind == layout.LOG or not disk.exists(
                f"{directory}/{layout.file_name(segment.base_offset, layout.LOG)}"
            ):
                raise
            continue
        files[name] = segment.size if kind == layout.LOG else disk.status(path).size
    if segment.is_audited:
        files |= _link_for_audit(disk, directory, links, segment)
    status = disk.status(f"{links}/{layout.file_name(segment.base_offset, layout.LOG)}")
    last_offset = segment.end_offset - 1 if segment.is_active else _last_offset(disk, links, segment)
    return LeasedSegment(
        segment.base_offset,
        last_offset,
        segment.size,
        segment.max_timestamp,
        status.mtime_ms,
        status.inode,
        segment.is_active,
        files,
    )


def _link_for_audit(disk: Disk, directory: str, links: str, segment: SegmentSnapshot) -> dict[str, int]:
    """Link the files that only an audit reads, if they exist: they are replaced by renaming, never overwritten."""
    found: dict[str, int] = {}
    wanted = {"snapshot": layout.file_name(segment.base_offset, layout.SNAPSHOT)}
    if segment.is_active:
        wanted["epochs"] = layout.LEADER_EPOCHS
    for name, file in wanted.items():
        path = f"{links}/{layout.file_name(segment.base_offset, FILES[name])}"
        with suppress(FileNotFoundError):
            disk.link(f"{directory}/{file}", path)
            found[name] = disk.status(path).size
    return found


def _last_offset(disk: Disk, links: str, segment: SegmentSnapshot) -> int:
    """Return the last batch's last offset, read from the last index entry on, or from the start if that fails.

    For a damaged segment it is the next segment's base - 1: an audit has to read such a segment too.
    """
    log = disk.open(f"{links}/{layout.file_name(segment.base_offset, layout.LOG)}")
    for start in (_last_indexed(disk, links, segment), 0):
        last = segment.base_offset - 1
        try:
            for place in scan.places(log.read_at, start, segment.size):
                last = place.last_offset
        except CorruptData:
            continue
        if segment.base_offset <= last < segment.end_offset or segment.size == 0:
            return last
    return segment.end_offset - 1


def _last_indexed(disk: Disk, links: str, segment: SegmentSnapshot) -> int:
    path = f"{links}/{layout.file_name(segment.base_offset, layout.INDEX)}"
    if not disk.exists(path):
        return 0
    file = disk.open(path)
    size = file.size() // OFFSET_ENTRY_SIZE * OFFSET_ENTRY_SIZE
    if size == 0:
        return 0
    position = int.from_bytes(file.read_at(4, size - 4), "big")
    return position if position < segment.size else 0


def _aborted_in(disk: Disk, links: str, base_offset: int) -> Sequence[AbortedTxn]:
    path = f"{links}/{layout.file_name(base_offset, layout.TXN_INDEX)}"
    try:
        return decode_aborted(read_whole(disk, path))
    except CorruptData:
        # The job sees the damage in the file itself; recovery rebuilds it.
        return ()
