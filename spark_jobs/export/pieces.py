"""An export's pieces, each committed as a version of its own: so a run of any size makes progress, and one that is
killed keeps what it has committed."""

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from logyard.broker.model import TopicPartition
from logyard.spark_jobs.export.failures import PartitionsFailed
from logyard.spark_jobs.segments.splits import Range, Split


@dataclass(frozen=True, slots=True)
class Piece:
    """The content of one version: the splits to write, and for every partition of the run the range that is exported
    when they are committed (empty if the piece has nothing of the partition)."""

    splits: tuple[Split, ...]
    ranges: tuple[Range, ...]

    @property
    def offsets(self) -> int:
        return sum(span.end - span.start for span in self.ranges)


class Pieces:
    """Hands out ranges piece by piece, with about as many bytes of every partition in each."""

    def __init__(self, ranges: Sequence[Range], splits_of: Callable[[Range], Iterator[Split]]) -> None:
        """:param splits_of: plans a range's splits, in order of offsets; called once per range, consumed lazily.

        Raises PartitionsFailed, naming every range whose first split cannot be planned.
        """
        self._ranges = {span.replica.tp: span for span in ranges}
        # Where each partition has come to, as an empty range: most pieces leave most partitions where they are.
        self._reached = {tp: Range(span.replica, span.start, span.start) for tp, span in self._ranges.items()}
        self._left: dict[TopicPartition, Iterator[Split]] = {}
        self._next: dict[TopicPartition, Split | None] = {}
        self.offsets_left = sum(span.end - span.start for span in self._ranges.values())
        # Partitions that have no split, though they have offsets: the next piece takes them to their end.
        self._empty: list[TopicPartition] = []
        # Partitions whose plan broke off, and why: what comes before that place is handed out, and nothing after it.
        self.broken: dict[TopicPartition, str] = {}
        self._last: Piece | None = None
        failed: dict[TopicPartition, str] = {}
        for tp, span in self._ranges.items():
            left = splits_of(span) if span.start < span.end else iter(())
            try:
                self._left[tp], self._next[tp] = left, next(left, None)
            except PartitionsFailed as error:
                failed |= error.reasons
                continue
            if self._next[tp] is None and span.start < span.end:
                self._empty.append(tp)
        if failed:
            raise PartitionsFailed(failed)

    def take(self, bytes_max: int) -> Piece | None:
        """Return the next piece, of about `bytes_max` bytes of the log and at least one split; None at the end."""
        if not self.offsets_left:
            return None
        taken: dict[TopicPartition, list[Split]] = {tp: [] for tp in self._empty}
        self._empty = []
        # Bytes taken of each partition that has more, the fewest first; the earlier partition where they are equal.
        fewest = [(0, n, tp) for n, (tp, following) in enumerate(self._next.items()) if following is not None]
        total = 0
        while fewest and total < bytes_max:
            size, n, tp = fewest[0]
            split = self._next[tp]
            assert split is not None, "it is among those that have one"
            taken.setdefault(tp, []).append(split)
            total += split.size
            self._next[tp] = self._following(tp, split)
            if self._next[tp] is None:
                heapq.heappop(fewest)
            else:
                heapq.heapreplace(fewest, (size + split.size, n, tp))
        ranges = self._reached | {tp: self._advance(tp, splits) for tp, splits in taken.items()}
        splits = [split for tp in self._ranges if tp in taken for split in taken[tp]]
        self._last = Piece(tuple(splits), tuple(ranges.values()))
        return self._last

    def take_back(self, failed: Collection[TopicPartition]) -> None:
        """Take back the last piece, which was not committed, and give up these partitions of it."""
        assert self._last is not None, "a piece was taken"
        splits: dict[TopicPartition, list[Split]] = defaultdict(list)
        for split in self._last.splits:
            splits[TopicPartition(split.segment.topic, split.segment.partition)].append(split)
        for span in self._last.ranges:
            tp = span.replica.tp
            if tp in failed:
                self.offsets_left -= self._ranges[tp].end - self._reached[tp].end
                del self._ranges[tp], self._reached[tp], self._left[tp], self._next[tp]
            elif span.start < span.end:
                self.offsets_left += span.end - span.start
                self._reached[tp] = Range(span.replica, span.start, span.start)
                self._put_back(tp, splits[tp])
        self._last = None

    def _put_back(self, tp: TopicPartition, splits: Sequence[Split]) -> None:
        if not splits:
            self._empty.append(tp)
            return
        following = self._next[tp]
        ahead = [*splits, *([] if following is None else [following])]
        self._next[tp], self._left[tp] = ahead[0], chain(ahead[1:], self._left[tp])

    def _following(self, tp: TopicPartition, split: Split) -> Split | None:
        """Return the split after this one; if it cannot be planned, the partition ends here."""
        try:
            return next(self._left[tp], None)
        except PartitionsFailed as error:
            self.broken |= error.reasons
            span = self._ranges[tp]
            self._ranges[tp] = Range(span.replica, span.start, split.end)
            self.offsets_left -= span.end - split.end
            return None

    def _advance(self, tp: TopicPartition, splits: Sequence[Split]) -> Range:
        """Return the range that is exported with these splits: to the partition's end if they are its last ones."""
        span, start = self._ranges[tp], self._reached[tp].start
        end = span.end if self._next[tp] is None else splits[-1].end
        self._reached[tp] = Range(span.replica, end, end)
        self.offsets_left -= end - start
        return Range(span.replica, start, end)
