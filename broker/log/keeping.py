"""Between a log and who keeps it: what it reports, what it asks to have synced, what it shows of its segments."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from logyard.broker.log import layout
from logyard.broker.log.disk.port import Disk, DiskFile, remove_if_there
from logyard.broker.log.flush import SeenUnsynced
from logyard.broker.log.segment.segment import Segment
from logyard.broker.model import TopicPartition

if TYPE_CHECKING:
    from logyard.broker.log.segmented import SegmentedLog


class LogKeeper(Protocol):
    """Who looks after a log's files and checkpoints: the store. All calls come from the log's own thread."""

    def making(self, tp: TopicPartition, path: str) -> None:
        """A log is about to be made: no checkpoint there may say of it what was true of an earlier one of its name."""
        ...

    def rolled(self, log: "SegmentedLog") -> None:
        """A segment was sealed: it should be flushed soon."""
        ...

    def retired(self, log: "SegmentedLog", paths: Sequence[str]) -> None:
        """These files are to be removed after file.delete.delay.ms."""
        ...

    def rewinding(self, log: "SegmentedLog") -> None:
        """The recovery point went below what the checkpoint on disk may claim: write that one before you return."""
        ...

    def cut(self, log: "SegmentedLog", offset: int) -> None:
        """The log was truncated and now ends at `offset`."""
        ...

    def damaged(self, log: "SegmentedLog", what: str) -> None:
        """Something of the log is lost, and what is sound is served; this may come from any thread."""
        ...


class NoKeeper:
    """For a log that stands alone: retired files are removed at once."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def making(self, tp: TopicPartition, path: str) -> None: ...

    def rolled(self, log: "SegmentedLog") -> None: ...

    def retired(self, log: "SegmentedLog", paths: Sequence[str]) -> None:
        for path in paths:
            remove_if_there(self._disk, path)

    def rewinding(self, log: "SegmentedLog") -> None: ...

    def cut(self, log: "SegmentedLog", offset: int) -> None: ...

    def damaged(self, log: "SegmentedLog", what: str) -> None: ...


class FlushPlan(NamedTuple):
    """What has to be synced so that all below `up_to` is durable, indexes and checkpoints of the log included."""

    disk: Disk
    up_to: int
    cuts: int
    files: list[DiskFile]
    segments: list[Segment]
    besides: SeenUnsynced

    def run(self) -> None:
        """Sync it all. Waits for the disk; any thread may do it while the log goes on."""
        for file in (*self.files, *self.besides.files):
            file.sync()
        for directory in self.besides.directories:
            self.disk.sync_directory(directory)


class SegmentInfo(NamedTuple):
    """A segment as others see it: `files` gives path and size by kind (`.log`…), of an active one its log alone.

    `last_offset` is the last batch's, base_offset - 1 where there is none; `mtime_ms` and `inode` are the log file's.
    """

    base_offset: int
    last_offset: int
    size: int
    max_timestamp: int
    mtime_ms: int
    inode: int
    is_active: bool
    files: dict[str, tuple[str, int]]


def segment_info(segment: Segment, end_offset: int, *, is_active: bool) -> SegmentInfo:
    """Describe a segment and its files; `end_offset` is behind its last batch."""
    status = segment.disk.status(segment.path(layout.LOG))
    files = {layout.LOG: (segment.path(layout.LOG), segment.size)}
    if not is_active:
        for kind in (layout.INDEX, layout.TIME_INDEX, layout.TXN_INDEX):
            if kind != layout.TXN_INDEX or segment.has_aborted:
                files[kind] = (segment.path(kind), segment.disk.status(segment.path(kind)).size)
    return SegmentInfo(
        segment.base_offset,
        end_offset - 1,
        segment.size,
        segment.max_timestamp,
        status.mtime_ms,
        status.inode,
        is_active,
        files,
    )
