"""The cleaner in plain Python: batch by batch. For logs that are small, and where numba is not installed."""

from collections.abc import Iterable, Iterator, Sequence

from logyard.broker.cleaner.leased_log import Cleaning
from logyard.broker.cleaner.passes import Engine
from logyard.broker.compaction.decision import Survey
from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.dirty_keys import BYTES_PER_KEY, DirtyKeyMap, DirtyKeys
from logyard.broker.compaction.passes import rewrite_batches, survey_batches
from logyard.broker.compaction.ranges import SegmentRange
from logyard.broker.compaction.transactions import AbortedTransaction
from logyard.broker.records.header import parse_header


class PlainPasses:
    """passes.Passes over batches."""

    def __init__(self, work: Cleaning, keys_max: int) -> None:
        self._work = work
        self._keys = DirtyKeys(keys_max)
        self._against = DirtyKeyMap(self._keys)

    def read_keys(
        self, segments: Sequence[SegmentRange], start: int, end: int, aborted: Iterable[AbortedTransaction]
    ) -> int:
        return self._keys.read(self._work.batches(segments), start, end, aborted)

    def survey(self, group: Sequence[SegmentRange], survey: Survey) -> Decision:
        return survey_batches(self._work.batches(group), survey, self._against)

    def rewrite(self, group: Sequence[SegmentRange], decision: Decision) -> Iterator[tuple[bytes | memoryview, int]]:
        for piece in rewrite_batches(self._work.batches(group), decision, self._work.tally):
            yield piece, parse_header(memoryview(piece)).last_offset


ENGINE = Engine("plain", BYTES_PER_KEY, PlainPasses)
