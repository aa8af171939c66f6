"""The names of files and directories in a log directory, exactly as Kafka spells them (facts §12).

A partition's directory is `T-P`; while it is being removed, moved or was found unwanted it is
`T-P.<32 hex>-delete`, `-future` or `-stray`. A segment's files carry its base offset in twenty digits.
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
SEGMENT_KINDS = (LOG, INDEX, TIME_INDEX, TXN_INDEX)

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
TEMPORARY = ".tmp"

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
LEASES = ".leases"
MOVED = ".moved"  # ours: this directory is the newer of two with one name

META_PROPERTIES = "meta.properties"
LOCK = ".lock"
BOOT = ".logyard-boot"  # ours: in which run of the machine all logs were last loaded
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
# What may stand behind the offset: (kind, suffix). A start takes apart the names of all files there are.
_ENDINGS = {k + s: (k, s) for k in (*SEGMENT_KINDS, SNAPSHOT) for s in ("", DELETED, CLEANED, SWAP)}


class DirectoryKind(Enum):
    """What a partition directory is there for; the value is the mark at the end of its name."""

    LIVE = ""
    DELETED = "delete"
    FUTURE = "future"
    STRAY = "stray"


class PartitionDirectory(NamedTuple):
    """A directory name taken apart. A `-delete` or `-stray` name may hold only the front of the topic."""

    partition: TopicPartition
    kind: DirectoryKind


class SegmentFile(NamedTuple):
    """A file name taken apart: base offset (or a snapshot's offset), kind (`.log`…), temporary suffix or ""."""

    offset: int
    kind: str
    suffix: str


def directory_name(tp: TopicPartition) -> str:
    """Return the name of a live partition's directory."""
    return f"{tp.topic}-{tp.partition}"


def marked_directory_name(tp: TopicPartition, unique: uuid.UUID, kind: DirectoryKind) -> str:
    """Return the name of a directory being removed, filled by a move, or found stray.

    The topic is cut so that the whole name fits 255 bytes; a `-future` name is not cut, for it must be read back.
    """
    tail = f"-{tp.partition}.{unique.hex}-{kind.value}"
    topic = tp.topic if kind is DirectoryKind.FUTURE else tp.topic[: NAME_LENGTH_MAX - len(tail)]
    return topic + tail


def parse_directory_name(name: str) -> PartitionDirectory | None:
    """Take a directory name apart; None where it is not a partition's."""
    if marked := _MARKED.fullmatch(name):
        topic, partition, _, mark = marked.groups()
        return PartitionDirectory(TopicPartition(topic, int(partition)), DirectoryKind(mark))
    if plain := _PLAIN.fullmatch(name):
        return PartitionDirectory(TopicPartition(plain[1], int(plain[2])), DirectoryKind.LIVE)
    return None


def file_name(offset: int, kind: str, suffix: str = "") -> str:
    """Return the file name of a segment (or snapshot) at that offset."""
    return f"{offset:020d}{kind}{suffix}"


def parse_file_name(name: str) -> SegmentFile | None:
    """Take a file name of a partition directory apart; None where it belongs to no segment."""
    digits = name[:_OFFSET_DIGITS]
    ending = _ENDINGS.get(name[_OFFSET_DIGITS:])
    if ending is None or not (digits.isascii() and digits.isdecimal()):
        return None
    return SegmentFile(int(digits), *ending)
