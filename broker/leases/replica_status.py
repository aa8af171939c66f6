"""The contents of GET /partitions: replicas without a lease, and directories that belong to no replica."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from logyard.broker import portions
from logyard.broker.leases.snapshot import offsets_of
from logyard.broker.log import layout
from logyard.broker.log.disk.port import Disk
from logyard.broker.log.layout import DirectoryKind
from logyard.broker.log.partition_log import PartitionLog
from logyard.broker.model import TopicPartition

BETWEEN_PAUSES = 100
# Of `portions.AT_ONCE`, which so many replicas take, or so many more segments of theirs.
_OF_A_REPLICA = portions.AT_ONCE // BETWEEN_PAUSES
_SEGMENTS_AT_A_COST = 10


def clean_offset_of(log: PartitionLog, checkpointed: int | None) -> int:
    """Return the cleaner's checkpoint within the log's bounds; the log's start if there is none."""
    return min(max(checkpointed or 0, log.log_start_offset), log.log_end_offset)


def cost_of(log: PartitionLog | None) -> int:
    """Return what the status of a replica costs, for `portions`: it names every segment."""
    return _OF_A_REPLICA + (0 if log is None else len(log.segments) // _SEGMENTS_AT_A_COST)


def status_of(log: PartitionLog, clean_offset: int, checkpoints: Mapping[str, int | None]) -> dict[str, Any]:
    """Return the part of a status that comes from the log."""
    return offsets_of(log, clean_offset) | {
        "topic": log.tp.topic,
        "partition": log.tp.partition,
        "size": log.size,
        "segments": [
            {"base_offset": segment.base_offset, "size": segment.size, "active": segment is log.segments.active}
            for segment in log.segments
        ],
        "checkpoints": dict(checkpoints),
    }


def directories_in(disk: Disk, log_dir: str) -> list[str]:
    """Return the directories in a log directory, except those being removed. Waits for the disk."""
    root = log_dir.rstrip("/")
    found = []
    for entry in disk.list(root):
        parsed = layout.parse_directory_name(entry.name)
        if entry.is_directory and (parsed is None or parsed.kind is not DirectoryKind.DELETED):
            found.append(f"{root}/{entry.name}")
    return found


async def strays(
    directories: Iterable[str], logs: Sequence[PartitionLog], is_ours: Callable[[TopicPartition], bool]
) -> list[str]:
    """Return the directories that hold no log of a replica of this broker; it takes turns of the event loop."""
    ours: set[str] = set()
    async for portion in portions.portions(logs):
        ours.update(log.directory for log in portion if is_ours(log.tp))
    return [path for path in directories if path not in ours]
