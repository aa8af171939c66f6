"""An export's pieces, each committed as a version of its own: so a run of any size makes progress, and one that is
killed keeps what it has committed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from logyard.broker.model import TopicPartition
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
        """:param splits_of: plans a range's splits, in order of offsets; called once per range, consumed lazily."""
        self._ranges = {span.replica.tp: span for span in ranges}
        self._at = {tp: span.start for tp, span in self._ranges.items()}
        self._left: dict[TopicPartition, Iterator[Split]] = {}
        self._next: dict[TopicPartition, Split | None] = {}
        for tp, span in self._ranges.items():
            left = splits_of(span) if span.start < span.end else iter(())
            self._left[tp], self._next[tp] = left, next(left, None)

    @property
    def offsets_left(self) -> int:
        return sum(span.end - self._at[tp] for tp, span in self._ranges.items())

    def take(self, bytes_max: int) -> Piece | None:
        """Return the next piece, of about `bytes_max` bytes of the log and at least one split; None at the end."""
        if not self.offsets_left:
            return None
        taken: dict[TopicPartition, list[Split]] = {tp: [] for tp in self._ranges}
        sizes = dict.fromkeys((tp for tp, following in self._next.items() if following is not None), 0)
        total = 0
        while sizes and total < bytes_max:
            tp = min(sizes, key=sizes.__getitem__)
            split = self._next[tp]
            assert split is not None, "it is among those that have one"
            taken[tp].append(split)
            sizes[tp] += split.size
            total += split.size
            self._next[tp] = next(self._left[tp], None)
            if self._next[tp] is None:
                del sizes[tp]
        ranges = [self._advance(tp, splits) for tp, splits in taken.items()]
        return Piece(tuple(split for splits in taken.values() for split in splits), tuple(ranges))

    def _advance(self, tp: TopicPartition, splits: Sequence[Split]) -> Range:
        """Return the range that is exported with these splits: to the partition's end if they are its last ones."""
        span, start = self._ranges[tp], self._at[tp]
        end = span.end if self._next[tp] is None else splits[-1].end if splits else start
        self._at[tp] = end
        return Range(span.replica, start, end)
