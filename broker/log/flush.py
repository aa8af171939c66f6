"""Flushing: how much of a log is durable, what has to be synced to get further, and the plan that does it.

Rule 1: everything below `recovery_point` is synced, indexes and epochs included. Before a truncation below it the
listener is called, so that the checkpoint on disk never claims more than there is (facts §13).
Rule 2: changes during a flush stay unsynced: every change increments a version, and a flush settles only the versions
that it saw.
"""

from collections.abc import Callable
from typing import NamedTuple

from logyard.broker.log import layout
from logyard.broker.log.disk.port import Disk, DiskFile
from logyard.broker.log.segment.segment import Segment
from logyard.broker.log.segment.segment_list import SegmentList


class UnsyncedSeen(NamedTuple):
    """The files and directories, besides the segments, that one flush syncs, and their versions."""

    files: list[DiskFile]
    directories: list[str]
    paths: dict[str, int]
    version: int


class LateContent(NamedTuple):
    """A small file that is there and empty; `encode` makes what belongs into it."""

    file: DiskFile
    encode: Callable[[], bytes]

    def write(self) -> None:
        """Write it; twice is as good as once."""
        self.file.write_at(self.encode(), 0)


class FlushPlan(NamedTuple):
    """What to sync so that everything below `up_to` is durable, with the log's indexes and checkpoints.

    `aborted`: how many aborted transactions the file of each segment had when the plan was made.
    """

    disk: Disk
    up_to: int
    cuts: int
    files: list[DiskFile]
    segments: list[Segment]
    aborted: list[int]
    besides: UnsyncedSeen
    late: list[LateContent]

    def run(self) -> None:
        """Sync it all. Waits for the disk; may run in any thread while the log is written to."""
        for content in self.late:
            content.write()
        for file in (*self.files, *self.besides.files):
            file.sync()
        for directory in self.besides.directories:
            self.disk.sync_directory(directory)


class FlushState:
    """How much of one log is durable: its records up to `recovery_point`, and which files and names are not yet.

    `is_new`: the directory's own name is not synced either. `is_as_found`: since a clean shutdown nothing has changed
    in the directory except the leader epochs. `flushed_at` is the time of the last flush in seconds of the monotonic
    clock; None before the first check.
    """

    __slots__ = (
        "_directory",
        "_disk",
        "_late",
        "_own_name",
        "_paths",
        "_segments",
        "_synced",
        "_version",
        "flushed_at",
        "is_as_found",
        "recovery_point",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segments: SegmentList,
        recovery_point: int,
        *,
        synced: bool,
        is_new: bool,
    ) -> None:
        self.recovery_point = recovery_point
        self.flushed_at: float | None = None
        self.is_as_found = synced and not is_new
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._paths: dict[str, int] = {}
        self._late: list[LateContent] = []
        self._version = 1
        self._synced = 1 if synced else 0
        self._own_name = 1 if is_new else 0  # the version at which the directory got its name; 0 once that is synced

    # -- what is unsynced -----------------------------------------------------------------------------------

    def note(self, path: str) -> None:
        """Have the next flush sync a small file."""
        self.is_as_found = False
        self.note_epochs(path)

    def note_late(self, path: str, encode: Callable[[], bytes]) -> None:
        """Make an empty file that the next flush fills and syncs: `encode` is called where that runs.

        What is cut off or renamed meanwhile goes on as the disk has it: the file stays open.
        """
        file = self._disk.open(path, create=True, write=True)
        file.truncate(0)
        self._late.append(LateContent(file, encode))
        self.note(path)

    def note_epochs(self, path: str) -> None:
        """Have the next flush sync the file of leader epochs."""
        self._version += 1
        self._paths[path] = self._version

    def names_changed(self) -> None:
        """Have the next flush sync the directory."""
        self.is_as_found = False
        self._version += 1

    def moved_to(self, directory: str) -> None:
        """The directory was renamed: its files have new paths, and its new name is not synced."""
        old = len(self._directory)
        self.names_changed()
        self._paths = {directory + path[old:]: self._version for path in self._paths}
        self._directory = directory
        self._own_name = self._version

    # -- plans ----------------------------------------------------------------------------------------------

    def plan(self, end: int) -> FlushPlan | None:
        """Return the plan that makes everything below `end` durable; None if nothing is to be done.

        Run the plan in any thread, then pass it to `done`. Plans may overlap: each is complete.
        """
        segments = self._segments
        first = segments.number_of(self.recovery_point)
        behind = segments.number_of(end - 1) + 1 if end > self.recovery_point else first
        while first > 0 and segments[first - 1].unsynced:
            first -= 1  # its records are durable, but it was sealed since, so its end and its indexes are not
        affected = segments.all[first:behind]
        is_clear = not self._paths and self._synced == self._version and not self._own_name
        if not affected and is_clear:
            return None
        files = [file for segment in affected for file in (segment.log_file(), *segment.unsynced)]
        aborted = [segment.aborted_written for segment in affected]
        return FlushPlan(self._disk, end, segments.cuts, files, affected, aborted, self._seen(), list(self._late))

    def done(self, plan: FlushPlan) -> None:
        """After a plan was run: advance the recovery point, unless the log was cut or discarded in between."""
        self._settle(plan.besides)
        self._late = [content for content in self._late if not any(content is written for written in plan.late)]
        if plan.cuts != self._segments.cuts:
            return
        self.recovery_point = max(self.recovery_point, plan.up_to)
        for segment, aborted in zip(plan.segments, plan.aborted, strict=True):
            # The entry of a transaction that was aborted meanwhile may have missed the sync: its file stays unsynced.
            grown = segment.path(layout.TXN_INDEX) if segment.aborted_written != aborted else None
            segment.unsynced = [file for file in segment.unsynced if file not in plan.files or file.path == grown]
        self._segments.touch_closed(plan.segments)

    def _seen(self) -> UnsyncedSeen:
        directories = [self._directory] if self._synced != self._version else []
        if self._own_name:
            directories.append(self._directory.rpartition("/")[0])
        files = [self._disk.open(path) for path in self._paths if self._disk.exists(path)]
        return UnsyncedSeen(files, directories, dict(self._paths), self._version)

    def _settle(self, seen: UnsyncedSeen) -> None:
        for path, version in seen.paths.items():
            if self._paths.get(path) == version:
                del self._paths[path]
        if seen.directories:
            self._synced = max(self._synced, seen.version)
            if seen.version >= self._own_name and seen.directories[-1] == self._directory.rpartition("/")[0]:
                self._own_name = 0
