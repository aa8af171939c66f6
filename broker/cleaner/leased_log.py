"""A leased log while it is cleaned: its segments, the place that was read last, and what was done so far."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from logyard.broker.compaction.old_formats import OLDEST_WITH_HORIZON, completed
from logyard.broker.compaction.passes import Batch
from logyard.broker.compaction.ranges import SegmentRange
from logyard.broker.compaction.rewrite import Tally
from logyard.broker.errors import ApiError, CorruptData
from logyard.broker.log import layout
from logyard.broker.log.disk.port import Disk, DiskFile
from logyard.broker.log.segment import scan
from logyard.broker.records.batch import crc_matches

Json = dict[str, Any]


@dataclass(slots=True)
class Cleaning:
    """A lease that is being cleaned. `throttle(bytes)` is called for bytes read or written, and may sleep."""

    lease: Json
    disk: Disk
    throttle: Callable[[int], None]
    segments: list[SegmentRange]
    decided: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    groups: list[Json] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    bytes_read: int = 0
    bytes_written: int = 0
    survivors: int = 0
    at: tuple[int, int, int] = (-1, -1, -1)  # segment, position and offset of the batch that was read last

    def open(self, segment: SegmentRange) -> DiskFile:
        """Open the link of a leased segment's log file."""
        return self.disk.open(f"{self.lease['links_dir']}/{layout.file_name(segment.base_offset, layout.LOG)}")

    def batches(self, segments: Sequence[SegmentRange]) -> Iterator[Batch]:
        """Yield the checked batches of leased segments; raises CorruptData.

        Their offsets are checked too, since no checksum covers the base offset. Messages before v2 may begin below
        their segment's base offset, in logs of old followers.
        """
        after = -1
        for segment in segments:
            self.at = segment.base_offset, 0, segment.base_offset
            file = self.open(segment)
            for position, header, data in scan.batches(file, 0, segment.size):
                self.at = segment.base_offset, position, header.base_offset
                if not crc_matches(data, 0, header):
                    raise CorruptData("its CRC is wrong")
                self.bytes_read += header.length
                self.throttle(header.length)
                header = completed(header, data)
                first = segment.base_offset if header.magic >= OLDEST_WITH_HORIZON else 0
                if not max(first, after + 1) <= header.base_offset <= header.last_offset <= segment.last_offset:
                    raise CorruptData("its offsets do not follow those before it, or are not its segment's")
                after = header.last_offset
                yield header, data

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Add the place to a CorruptData: partition, segment, and the last batch read."""
        try:
            yield
        except (CorruptData, ApiError) as error:  # ApiError: there is no such codec
            base, position, offset = self.at
            partition = f"{self.lease['topic']}-{self.lease['partition']}"
            where = f"{partition}, segment {base}: batch at position {position} (offset {offset}) or beside it"
            raise CorruptData(f"{where}: {error}") from error


def segments_of(lease: Json) -> list[SegmentRange]:
    """Return the segments of a lease's answer."""
    return [
        SegmentRange(s["base_offset"], s["last_offset"], s["size"], s["max_timestamp"], s["files"].get("index", 0))
        for s in lease["segments"]
    ]
