"""The names of files and directories in a log directory, exactly as Kafka spells them (facts §12).

A partition's directory is `T-P`; while it is deleted, filled by a move, or unwanted, it is `T-P.<32 hex>-delete`,
`-future` or `-stray`. A segment's files have its base offset, in twenty digits, in their names.
"""

import re
import uuid
from enum import Enum
from typing import NamedTuple

from logyard.broker.model import TopicPartition

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
ALWAYS_THERE = (LOG, INDEX, TIME_INDEX)  # of every segment
SEGMENT_KINDS = (*ALWAYS_THERE, TXN_INDEX)

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
NEW = ".new"  # ours: of the one segment of a log that starts over, while the old ones are still there
FORMER = "logyard.former"  # ours: an attribute of a log file (segment/former.py)
TEMPORARY = ".tmp"

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
LEASES = ".leases"
MOVED = ".moved"  # ours: this directory is the newer of two with one name

META_PROPERTIES = "meta.properties"
LOCK = ".lock"
BOOT = ".logyard-boot"  # ours: the boot id of the machine when all logs were last loaded
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CHECKPOINTS = (HIGH_WATERMARKS, RECOVERY_POINTS, LOG_STARTS, CLEANER_OFFSETS)

NAME_LENGTH_MAX = 255

_MARKED = re.compile(r"(.+)-(\d+)\.([0-9a-f]{32})-(delete|future|stray)")
_PLAIN = re.compile(r"(.+)-(\d+)")
_OFFSET_DIGITS = 20
# The possible endings after the offset, as (kind, suffix). A table, because a start parses the names of all files.
_ENDINGS = {k + s: (k, s) for k in (*SEGMENT_KINDS, SNAPSHOT) for s in ("", DELETED, CLEANED, SWAP, NEW)}


class DirectoryKind(Enum):
    """The purpose of a partition directory; the value is the mark at the end of its name."""

    LIVE = ""
    DELETED = "delete"
    FUTURE = "future"
    STRAY = "stray"


class PartitionDirectory(NamedTuple):
    """A parsed directory name. In a `-delete` or `-stray` name the topic may be cut short."""

    partition: TopicPartition
    kind: DirectoryKind


class SegmentFile(NamedTuple):
    """A parsed file name: base offset (or a snapshot's offset), kind (`.log`…), temporary suffix or ""."""

    offset: int
    kind: str
    suffix: str


def directory_name(tp: TopicPartition) -> str:
    """Return the name of a live partition's directory."""
    return f"{tp.topic}-{tp.partition}"


def marked_directory_name(tp: TopicPartition, unique: uuid.UUID, kind: DirectoryKind) -> str:
    """Return the name of a directory that is being deleted, is filled by a move, or is stray.

    The topic is cut so that the whole name fits in 255 bytes; a `-future` name is not cut, because it is parsed again.
    """
    tail = f"-{tp.partition}.{unique.hex}-{kind.value}"
    topic = tp.topic if kind is DirectoryKind.FUTURE else tp.topic[: NAME_LENGTH_MAX - len(tail)]
    return topic + tail


def parse_directory_name(name: str) -> PartitionDirectory | None:
    """Parse a directory name; None if it is not a partition's."""
    if marked := _MARKED.fullmatch(name):
        topic, partition, _, mark = marked.groups()
        return PartitionDirectory(TopicPartition(topic, int(partition)), DirectoryKind(mark))
    if plain := _PLAIN.fullmatch(name):
        return PartitionDirectory(TopicPartition(plain[1], int(plain[2])), DirectoryKind.LIVE)
    return None


def is_future(path: str) -> bool:
    """Whether the directory at this path is that of a copy which a move between log directories fills."""
    parsed = parse_directory_name(path.rpartition("/")[2])
    return parsed is not None and parsed.kind is DirectoryKind.FUTURE


def file_name(offset: int, kind: str, suffix: str = "") -> str:
    """Return the file name of a segment (or snapshot) at that offset."""
    return f"{offset:020d}{kind}{suffix}"


def parse_file_name(name: str) -> SegmentFile | None:
    """Parse the name of a file in a partition directory; None if it belongs to no segment."""
    digits = name[:_OFFSET_DIGITS]
    ending = _ENDINGS.get(name[_OFFSET_DIGITS:])
    if ending is None or not (digits.isascii() and digits.isdecimal()):
        return None
    return SegmentFile(int(digits), *ending)
