"""What a live lease covers on this broker: the log, the segments as they were linked, the parts received."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from logyard.broker.leases.book import Lease, LeaseError
from logyard.broker.leases.requests import Group, invalid_request
from logyard.broker.leases.snapshot import LeasedSegment
from logyard.broker.log.disk.port import Disk
from logyard.broker.log.partition_log import PartitionLog


@dataclass(slots=True)
class LeasedLog:
    """`directory` is the lease's own; `parts` has (size, sha256) of each part that came by HTTP, by base offset.

    `placing` has the tasks that put a part in its place.
    """

    lease: Lease
    log: PartitionLog
    directory: str
    segments: dict[int, LeasedSegment] = field(default_factory=dict)
    parts: dict[int, tuple[int, str]] = field(default_factory=dict)
    is_set_up: bool = False
    parts_received: int = 0
    placing: set[Any] = field(default_factory=set)

    @property
    def links_directory(self) -> str:
        return f"{self.directory}/links"

    @property
    def parts_directory(self) -> str:
        return f"{self.directory}/parts"

    def set_up(self, segments: Iterable[LeasedSegment]) -> None:
        """Record the leased segments, in offset order: their links exist, and the lease can be used."""
        self.note_segments(segments)
        self.is_set_up = True

    def note_segments(self, segments: Iterable[LeasedSegment]) -> None:
        self.segments = {segment.base_offset: segment for segment in segments}

    def segment(self, base_offset: int) -> LeasedSegment:
        """Return a leased segment; raises LeaseError(unknown_segment)."""
        found = self.segments.get(base_offset)
        if found is None:
            raise LeaseError(
                "unknown_segment", 404, f"segment {base_offset} is not among those of lease {self.lease.lease_id}"
            )
        return found

    def from_segment(self, base_offset: int) -> list[LeasedSegment]:
        """Return the leased segments from that one on; raises LeaseError(unknown_segment)."""
        first = self.segment(base_offset)
        return [segment for base, segment in self.segments.items() if base >= first.base_offset]

    def members(self, groups: Sequence[Group]) -> list[list[LeasedSegment]]:
        """Return the segments of each group.

        Raises LeaseError: `unknown_segment`; or `invalid_request` if segments of a group are not adjacent, or groups
        not ascending.
        """
        numbers = {base: number for number, base in enumerate(self.segments)}
        members: list[list[LeasedSegment]] = []
        free_from = 0
        for group in groups:
            found = [self.segment(base) for base in group.segments]
            first = numbers[group.base_offset]
            if [numbers[base] for base in group.segments] != list(range(first, first + len(found))):
                raise invalid_request(f"groups: {list(group.segments)} are not adjacent, ascending leased segments")
            if first < free_from:
                raise invalid_request(
                    f"groups: the one of segment {group.base_offset} must come after the groups before it"
                )
            free_from = first + len(found)
            members.append(found)
        return members


def remove_directory(disk: Disk, directory: str) -> None:
    """Remove a lease's directory, if it exists. Waits for the disk; raises DiskError.

    It is renamed first. Otherwise a job that still writes into it could make the removal fail half-way, and a failed
    disk operation takes the log directory offline.
    """
    gone = f"{directory}.ended"
    with suppress(FileNotFoundError):  # it was never created, or was removed with its partition
        disk.rename(directory, gone)
        disk.remove_tree(gone)
