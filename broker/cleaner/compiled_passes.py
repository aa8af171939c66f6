"""The cleaner in compiled loops, chunk by chunk: needs numpy and numba (`engines.py` decides, and loads them)."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from logyard.broker.cleaner.leased_log import Cleaning
from logyard.broker.cleaner.passes import Engine
from logyard.broker.compaction.decision import Survey
from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.ranges import SegmentRange
from logyard.broker.compaction.transactions import AbortedTransaction
from logyard.broker.compiled.chunk_rewrite import ChunkRewriter
from logyard.broker.compiled.chunks import trusted_chunks
from logyard.broker.compiled.dirty_table import BYTES_PER_KEY, DirtyTable, NamedChunk
from logyard.broker.compiled.kernels import BASE_OFFSET, LAST_DELTA, Array
from logyard.broker.errors import CorruptData
from logyard.broker.log.disk.port import DiskFile


class CompiledPasses:
    """passes.Passes over chunks."""

    def __init__(self, work: Cleaning, keys_max: int) -> None:
        self._work = work
        self._keys = DirtyTable(keys_max)

    def read_keys(
        self, segments: Sequence[SegmentRange], start: int, end: int, aborted: Iterable[AbortedTransaction]
    ) -> int:
        return self._keys.read(self._chunks(segments), start, end, aborted)

    def survey(self, group: Sequence[SegmentRange], survey: Survey) -> Decision:
        return self._keys.survey(self._chunks(group), survey)

    def rewrite(self, group: Sequence[SegmentRange], decision: Decision) -> Iterator[tuple[memoryview, int]]:
        return ChunkRewriter(decision, self._work.tally).rewrite(self._chunks(group))

    def _chunks(self, segments: Sequence[SegmentRange]) -> Iterator[NamedChunk]:
        work, after = self._work, -1
        for segment in segments:
            work.at = segment.base_offset, 0, segment.base_offset
            name = f"segment {segment.base_offset}"
            source = _Source(work.open(segment), segment.size)
            for chunk in trusted_chunks(source, name, segment.base_offset, segment.last_offset, after):
                work.at = segment.base_offset, chunk.file_position, int.from_bytes(chunk.data[:8].tobytes(), "big")
                work.bytes_read += len(chunk.data)
                work.throttle(len(chunk.data))
                yield name, chunk
                after = int(chunk.headers[-1, BASE_OFFSET] + chunk.headers[-1, LAST_DELTA])


class _Source:
    """The bytes of one leased segment (chunks.ByteSource)."""

    def __init__(self, file: DiskFile, size: int) -> None:
        self._file, self.size = file, size

    def read(self, position: int, size: int) -> Array:
        """Return `size` bytes from `position`; raises CorruptData if the file is shorter than the lease says."""
        data = self._file.read_at(size, position)
        if len(data) != size:
            raise CorruptData(f"it ends at {position + len(data)}, {self.size} bytes are expected")
        # A copy, because kernels are compiled for arrays that can be written.
        return np.frombuffer(data, np.uint8).copy()


ENGINE = Engine("compiled", BYTES_PER_KEY, CompiledPasses)
