"""Pass 2 of a compaction, inside one task: writes the surviving records of one replica's segments into new files.

The rules are those of broker/compaction; here they run over chunks of arrays. This module uses neither Spark nor
leases.
"""

import hashlib
import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.ranges import SegmentRange, group_segments
from logyard.broker.compaction.rewrite import Tally
from logyard.broker.compiled.chunk_rewrite import ChunkRewriter
from logyard.spark_jobs.segments.files import SegmentFile


@dataclass(frozen=True, slots=True)
class Part:
    """A file that replaces adjacent segments: its path, and its fields in the commit (docs/leases.md, `groups`)."""

    segments: tuple[int, ...]
    path: str
    size: int
    sha256: str
    last_offset: int
    records: int
    bytes_in: int

    def to_group(self) -> dict[str, Any]:
        """Return the part as one of the commit's groups."""
        part = {"size": self.size, "sha256": self.sha256, "last_offset": self.last_offset, "records": self.records}
        return {"segments": list(self.segments), "part": part}


@dataclass(slots=True)
class RewriteResult(Tally):
    """Result of pass 2 for one replica: the parts, and sums over all segments that it read."""

    parts: list[Part] = field(default_factory=list)
    bytes_in: int = 0
    bytes_out: int = 0


def plan_groups(segments: Sequence[SegmentFile], decision: Decision, config: dict[str, Any]) -> list[list[SegmentFile]]:
    """Return the groups of closed segments that pass 2 rewrites: those that hold offsets of the decision's range."""
    touched = [
        s
        for s in segments
        if not s.active and s.base_offset < decision.range_end and s.last_offset >= decision.range_start
    ]
    by_base = {s.base_offset: s for s in touched}
    ranges = [SegmentRange(s.base_offset, s.last_offset, s.size, -1, s.files.get("index", 0)) for s in touched]
    groups = group_segments(
        ranges,
        segment_bytes=int(config.get("segment.bytes", 2**30)),
        index_bytes=int(config.get("segment.index.bytes", 10 * 2**20)),
    )
    return [[by_base[r.base_offset] for r in group] for group in groups]


class Rewriter:
    """Writes the part of each group of one replica's segments into `directory`; `result` has the parts and sums."""

    def __init__(self, decision: Decision, directory: str) -> None:
        self._directory = directory
        self.result = RewriteResult()
        self._chunks = ChunkRewriter(decision, self.result)

    def rewrite(self, group: Sequence[SegmentFile]) -> Part | None:
        """Write one group's part, `<base>.part` (under a temporary name, then renamed); None if nothing would
        change."""
        base = group[0].base_offset
        temporary = os.path.join(self._directory, f"{base:020d}.{uuid.uuid4().hex}.tmp")
        digest = hashlib.sha256()
        before = self.result.batches_verbatim, self.result.batches_in, self.result.records_out, self.result.bytes_in
        try:
            with open(temporary, "xb") as file:
                size, last_offset = self._write(group, file, digest.update)
                verbatim = self.result.batches_verbatim - before[0] == self.result.batches_in - before[1]
                bytes_in = self.result.bytes_in - before[3]
                if len(group) == 1 and verbatim:
                    return None
                file.flush()
                os.fsync(file.fileno())
            path = os.path.join(self._directory, f"{base:020d}.part")
            os.replace(temporary, path)
        finally:
            if os.path.exists(temporary):
                os.unlink(temporary)
        records = self.result.records_out - before[2]
        bases = tuple(s.base_offset for s in group)
        part = Part(bases, path, size, digest.hexdigest(), last_offset, records, bytes_in)
        self.result.parts.append(part)
        return part

    def _write(
        self, group: Sequence[SegmentFile], file: IO[bytes], digest: Callable[[memoryview], None]
    ) -> tuple[int, int]:
        size, last_offset = 0, group[0].base_offset - 1
        chunks = ((segment.where, chunk) for segment in group for chunk in segment.chunks())
        for piece, last in self._chunks.rewrite(chunks):
            file.write(piece)
            digest(piece)
            size += len(piece)
            last_offset = max(last_offset, last)
        self.result.bytes_in += sum(s.size for s in group)
        self.result.bytes_out += size
        return size, last_offset
