"""An export's pieces, each committed as a version of its own: so a run of any size makes progress, and one that is
killed keeps what it has committed."""

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from logyard.broker.errors import LogyardError
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
    """Hands out ranges piece by piece, with about as many bytes of every partition in each.

    A piece counts as exported unless it is taken back. A `take` that fails changes nothing: what it had gathered comes
    again, and where a plan broke off it is made again from there.
    """

    def __init__(self, ranges: Sequence[Range], splits_of: Callable[[Range], Iterator[Split]]) -> None:
        """:param splits_of: plans a range's splits, in order of offsets; consumed lazily, and called again only for
            what is left of a range: after it raised anything but PartitionsFailed, or by `replan`.

        Raises PartitionsFailed, naming every range whose first split cannot be planned.
        """
        self._splits_of = splits_of
        self._courses = {span.replica.tp: _Course(span, splits_of) for span in ranges}
        # Where each partition has come to, as an empty range: most pieces leave most partitions where they are.
        self._reached = {tp: Range(c.span.replica, c.span.start, c.span.start) for tp, c in self._courses.items()}
        # Partitions whose plan broke off, and why: what comes before that place is handed out, and nothing after it.
        self.broken: dict[TopicPartition, str] = {}
        self._last: Piece | None = None
        # The partitions that the last piece has something of.
        self._in_last: Collection[TopicPartition] = ()
        failed: dict[TopicPartition, str] = {}
        for course in self._courses.values():
            try:
                course.peek()
            except PartitionsFailed as error:
                failed |= error.reasons
            except (LogyardError, OSError):  # its lease may be lost: `take` asks again, and tells
                break
        if failed:
            raise PartitionsFailed(failed)

    @property
    def offsets_left(self) -> int:
        """How many offsets are not handed out yet."""
        return sum(course.span.end - self._reached[tp].end for tp, course in self._courses.items())

    def needs(self, tp: TopicPartition) -> bool:
        """Whether anything of a partition is still to be read, or may have to be read again (of the last piece)."""
        course = self._courses.get(tp)
        return course is not None and (tp in self._in_last or self._reached[tp].end < course.span.end)

    def take(self, bytes_max: int) -> Piece | None:
        """Return the next piece, of about `bytes_max` bytes of the log and at least one split; None at the end.

        Raises what planning raises but PartitionsFailed; the splits that were gathered by then come again.
        """
        self._last, self._in_last = None, ()
        taken: dict[TopicPartition, list[Split]] = {}
        try:
            self._gather(bytes_max, taken)
        except BaseException:
            for tp, splits in taken.items():
                self._courses[tp].put_back(splits)
            raise
        if not taken:
            return None  # whoever has offsets left is there, with splits or without
        ranges = self._reached | {tp: self._advance(tp, splits) for tp, splits in taken.items()}
        found = [split for tp in self._courses if tp in taken for split in taken[tp]]
        self._last, self._in_last = Piece(tuple(found), tuple(ranges.values())), frozenset(taken)
        return self._last

    def take_back(self, failed: Collection[TopicPartition] = ()) -> None:
        """Take back the last piece, which was not committed (nothing, if there is none), and give up these
        partitions."""
        last, self._last, self._in_last = self._last, None, ()
        splits: dict[TopicPartition, list[Split]] = defaultdict(list)
        for split in () if last is None else last.splits:
            splits[TopicPartition(split.segment.topic, split.segment.partition)].append(split)
        for span in () if last is None else last.ranges:
            if span.start < span.end:
                self._reached[span.replica.tp] = Range(span.replica, span.start, span.start)
                self._courses[span.replica.tp].put_back(splits[span.replica.tp])
        for tp in failed:
            self._courses.pop(tp, None)
            self._reached.pop(tp, None)

    def rest(self, tp: TopicPartition) -> Range:
        """Return what is not handed out of a partition, up to the end it began with, whether or not its plan broke off
        before; a piece that was not committed has to be taken back first."""
        reached = self._reached[tp]
        return Range(reached.replica, reached.end, self._courses[tp].whole.end)

    def replan(self, span: Range) -> None:
        """Plan one partition anew, as this range, which begins at or after its `rest`: its lease is another one now."""
        tp = span.replica.tp
        self.broken.pop(tp, None)
        self._courses[tp] = _Course(span, self._splits_of)
        self._reached[tp] = Range(span.replica, span.start, span.start)

    def _gather(self, bytes_max: int, taken: dict[TopicPartition, list[Split]]) -> None:
        """Move splits from the partitions to `taken`; a partition that has offsets and no split is there without
        one."""
        # Bytes taken of each partition that has more, the fewest first; the earlier partition where they are equal.
        fewest: list[tuple[int, int, TopicPartition]] = []
        for n, (tp, course) in enumerate(self._courses.items()):
            # All partitions are looked at for each piece: most have a split ready, or are done.
            if course.ahead:
                fewest.append((0, n, tp))
            elif course.is_done:
                continue
            elif self._following(tp) is not None:
                fewest.append((0, n, tp))
            elif self._reached[tp].end < course.span.end:
                taken[tp] = []
        total = 0
        while fewest and total < bytes_max:
            size, n, tp = fewest[0]
            split = self._courses[tp].pop()
            taken.setdefault(tp, []).append(split)
            total += split.size
            if self._following(tp) is None:
                heapq.heappop(fewest)
            else:
                heapq.heapreplace(fewest, (size + split.size, n, tp))

    def _following(self, tp: TopicPartition) -> Split | None:
        """Return a partition's next split; if it cannot be planned, the partition ends here."""
        try:
            return self._courses[tp].peek()
        except PartitionsFailed as error:
            self.broken |= error.reasons
            self._courses[tp].end_here()
            return None

    def _advance(self, tp: TopicPartition, splits: Sequence[Split]) -> Range:
        """Return the range that is exported with these splits: to the partition's end if they are its last ones."""
        course, start = self._courses[tp], self._reached[tp].end
        course.is_done = not course.ahead
        end = course.span.end if course.is_done else splits[-1].end
        self._reached[tp] = Range(course.span.replica, end, end)
        return Range(course.span.replica, start, end)


class _Course:
    """One partition's splits, planned one ahead. `span`: what is handed out in the end; `whole`: what was asked for."""

    def __init__(self, span: Range, splits_of: Callable[[Range], Iterator[Split]]) -> None:
        self.span = self.whole = span
        self._splits_of = splits_of
        self.ahead: deque[Split] = deque()  # those that are ready
        self.is_done = False  # all of it is handed out
        # None: not planned yet, from the end of the last split on.
        self._left: Iterator[Split] | None = None
        self._planned = span.start

    def peek(self) -> Split | None:
        """Return the next split, None at the end; raises what planning raises. Asked again, it plans from there."""
        if not self.ahead:
            split = self._planned_next()
            if split is None:
                return None
            self.ahead.append(split)
            self._planned = split.end
        return self.ahead[0]

    def _planned_next(self) -> Split | None:
        if self._left is None:
            if self._planned >= self.span.end:
                return None
            begun = self._planned > self.span.start
            rest = Range(self.span.replica, self._planned, self.span.end) if begun else self.span
            self._left = self._splits_of(rest)
        try:
            return next(self._left, None)
        except BaseException:
            # A generator that has raised says it is at its end: the rest would be left out.
            self._left = None
            raise

    def pop(self) -> Split:
        """Return the next split, which was peeked at, and go on."""
        return self.ahead.popleft()

    def put_back(self, splits: Sequence[Split]) -> None:
        """Take back the last splits that were popped."""
        self.is_done = False
        self.ahead.extendleft(reversed(splits))

    def end_here(self) -> None:
        """End after the splits that are planned."""
        self.span = Range(self.span.replica, self.span.start, self._planned)
        self._left = iter(())
