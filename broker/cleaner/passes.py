"""What an engine of the cleaner does: the passes of one cleaning. All engines write the same bytes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from logyard.broker.cleaner.leased_log import Cleaning
from logyard.broker.compaction.decision import Survey
from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.ranges import SegmentRange
from logyard.broker.compaction.transactions import AbortedTransaction


class Passes(Protocol):
    """The passes of one cleaning. Each raises CorruptData for a batch that cannot be read."""

    def read_keys(
        self, segments: Sequence[SegmentRange], start: int, end: int, aborted: Iterable[AbortedTransaction]
    ) -> int:
        """Take the keys of the dirty part [start, end); returns the offset below which all were taken."""
        ...

    def survey(self, group: Sequence[SegmentRange], survey: Survey) -> Decision:
        """Decide about the segments of one group, by the keys that were taken."""
        ...

    def rewrite(self, group: Sequence[SegmentRange], decision: Decision) -> Iterator[tuple[bytes | memoryview, int]]:
        """Yield what is left of a group: whole batches, and the largest offset in or before them. Counts in the
        cleaning's tally."""
        ...


@dataclass(frozen=True, slots=True)
class Engine:
    """`open(cleaning, keys_max)` begins a cleaning with memory for so many keys of `bytes_per_key`."""

    name: str
    bytes_per_key: int
    open: Callable[[Cleaning, int], Passes]
