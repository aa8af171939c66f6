"""The segments of one log in the order of their offsets: look-up by offset, adding, cutting at both ends.

Rule: a look-up in a thread notes `cuts` first, and its result is void once `cuts` has changed.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from logyard.broker.config.topic import TopicConfig
from logyard.broker.log.disk.port import Disk
from logyard.broker.log.segment import creation, index_builder, swap
from logyard.broker.log.segment.index import AbortedTxn
from logyard.broker.log.segment.open_segments import OpenSegments
from logyard.broker.log.segment.segment import Segment

# Timestamps are 64 bits with a sign: no record has this one.
LATER_THAN_ANY = 1 << 63

_by_base = attrgetter("base_offset")
_by_last = attrgetter("last_offset")


class SegmentList:
    """A log's segments; `all` is never empty, its last one is the `active` one, and the others are closed.

    `size` is the bytes of all log files. `cuts` counts how often bytes were removed or moved. `lost_tails` has, by the
    base offset of each closed segment that ends inside a batch, the first missing offset. Methods that remove segments
    return the paths of their renamed files, which are to be removed later.
    """

    __slots__ = ("_held", "_latest", "active", "all", "cuts", "disk", "lost_tails", "open_segments", "size", "swaps")

    def __init__(self, disk: Disk, segments: list[Segment], open_segments: OpenSegments) -> None:
        self.disk = disk
        self.all = segments
        self.active = segments[-1]
        self.open_segments = open_segments
        self.size = sum(segment.size for segment in segments)
        self.cuts = 0
        self.swaps = 0  # those of the cuts that leave open files as they are
        self.lost_tails: dict[int, int] = {}
        self._held: dict[str, frozenset[int]] = {}
        # The largest timestamp up to each of the first closed ones, as far as somebody has searched.
        self._latest: list[int] = []

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.all)

    def __getitem__(self, number: int) -> Segment:
        return self.all[number]

    @property
    def closed(self) -> list[Segment]:
        """All but the active one."""
        return self.all[:-1]

    # -- finding --------------------------------------------------------------------------------------------

    def number_of(self, offset: int) -> int:
        """Return the index in the list of the segment that holds (or would hold) an offset."""
        if offset >= self.active.base_offset:
            return len(self.all) - 1
        return max(0, bisect_right(self.all, offset, key=_by_base) - 1)

    def end_of(self, number: int, log_end: int) -> int:
        """Return the offset after a segment: the next one's base, or the log's end."""
        following = number + 1
        return self.all[following].base_offset if following < len(self.all) else log_end

    def first_as_late(self, timestamp: int) -> Segment | None:
        """Return the first segment that has a timestamp of at least that, None if none has. Each is looked at once:
        there may be ten thousand, and a search for each partition of a request."""
        latest, closed = self._latest, len(self.all) - 1
        while len(latest) < closed and (not latest or latest[-1] < timestamp):
            own = self.all[len(latest)].max_timestamp
            latest.append(max(own, latest[-1]) if latest else own)
        number = bisect_left(latest, timestamp)
        if number < closed:
            return self.all[number]
        return self.active if self.active.max_timestamp >= timestamp else None

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of all, -1 if there is none."""
        self.first_as_late(LATER_THAN_ANY)
        return max([self.active.max_timestamp, *self._latest[-1:]])

    def aborted_between(self, start: int, end: int) -> list[AbortedTxn]:
        """Return the aborted transactions that touch offsets from `start` to below `end`."""
        found: list[AbortedTxn] = []
        # A marker lies at or after its transaction's data, so markers below `start` do not count.
        for segment in self.all[self.number_of(start) :]:
            entries = segment.aborted
            for number in range(bisect_left(entries, start, key=_by_last), len(entries)):
                entry = entries[number]
                if entry.first_offset < end:
                    found.append(entry)
                if entry.last_stable_offset >= end:
                    # Every transaction that began below this stable offset had ended, so later entries cannot touch the
                    # range.
                    return found
        return found

    def touch_closed(self, segments: Iterable[Segment]) -> None:
        """Count the closed ones among these as open files, so that they are released when there are too many."""
        closed = self.closed
        for segment in segments:
            if segment in closed:
                self.open_segments.touch(segment)

    def note_lost_tail(self, segment: Segment, offset: int) -> bool:
        """Record that a closed segment ends inside a batch and `offset` is missing; returns whether that is new. Any
        thread."""
        known = self.lost_tails.get(segment.base_offset)
        self.lost_tails[segment.base_offset] = offset if known is None else min(known, offset)
        return known is None

    # -- growing --------------------------------------------------------------------------------------------

    def add(self, segment: Segment) -> None:
        """Make a new, empty segment the active one; the one before it was sealed."""
        self.all.append(segment)
        self.active = segment

    # -- cutting the end ------------------------------------------------------------------------------------

    def end_after_cut(self, offset: int, index_interval: int) -> int:
        """Return where the log would end if it were cut at `offset`: there, or at the base of the batch that holds
        it."""
        segment = self.all[self.number_of(offset)]
        self._latest.clear()  # what is rebuilt may have another timestamp
        index_builder.load(segment, index_interval)
        place = segment.find(offset, segment.read)
        return offset if place is None else min(offset, place.base_offset)

    def cut(self, offset: int, config: TopicConfig) -> tuple[int, list[str]]:
        """Drop every batch that reaches `offset`; returns the end, and the paths to be removed.

        The segment that becomes the active one must have its indexes loaded (`end_after_cut`). If something cannot be
        opened (DiskError), nothing has changed.
        """
        last = self.number_of(offset)
        self.all[last].prepare_cut()
        self._latest.clear()
        if len(self.all) > last + 1:
            self.all[last].activate(config)  # first: if it cannot be opened, the log stays as it is
        retired = [path for segment in reversed(self.all[last + 1 :]) for path in self._retire(segment)]
        if len(self.all) > last + 1:
            del self.all[last + 1 :]
            self.active = self.all[last]
            self.open_segments.forget(self.active)
        end = self.active.truncate_to(offset)
        self.lost_tails.pop(self.active.base_offset, None)
        self._resize()
        return end, retired

    def start_over(self, segment: Segment) -> list[str]:
        """Make a new, empty segment, which lies aside, the only one; returns the paths to be removed. Opens nothing."""
        retired = [path for old in reversed(self.all) for path in self._retire(old)]
        creation.put_in_place(segment)
        self.active = segment
        self.all[:] = [segment]
        self._latest.clear()
        self._resize()
        return retired

    # -- cutting the front, replacing -----------------------------------------------------------------------

    def hold(self, holder: str, bases: Iterable[int]) -> None:
        """Protect these segments from retention (for a compact lease) until `release_hold`."""
        self._held[holder] = frozenset(bases)

    def release_hold(self, holder: str) -> None:
        self._held.pop(holder, None)

    @property
    def held(self) -> frozenset[int]:
        """The base offsets of all protected segments."""
        return frozenset(base for bases in self._held.values() for base in bases)

    def drop_oldest(self, count: int) -> list[str]:
        """Drop the first segments; returns the paths to be removed."""
        gone = self.all[:count]
        retired = [path for segment in gone for path in self._retire(segment)]
        del self.all[:count]
        self._latest.clear()
        self.size -= sum(segment.size for segment in gone)
        return retired

    def swap_in(self, replacements: Sequence[swap.Replacement]) -> list[str]:
        """Put prepared replacements in place by renames; returns the paths to be removed.

        Raises BadPart, with nothing changed, if a replaced segment is no longer in the log.
        """
        if not replacements:
            return []
        present = {id(segment) for segment in self.closed}
        for replacement in replacements:
            if not all(id(segment) in present for segment in replacement.old):
                swap.withdraw(replacements)
                raise swap.BadPart(
                    replacement.new.base_offset, "the log was cut since, and the segments it replaces are gone"
                )
        # First: from now on the names of the old files belong to others.
        self.cuts += 1
        self.swaps += 1
        swap.decide(replacements)
        retired = swap.complete(replacements)
        gone = {id(segment): replacement for replacement in replacements for segment in replacement.old}
        row: list[Segment] = []
        for segment in self.all:
            arrived = gone.get(id(segment))
            if arrived is None:
                row.append(segment)
            elif not row or row[-1] is not arrived.new:
                row.append(arrived.new)
            if arrived is not None and arrived.new is not segment:
                self.lost_tails.pop(segment.base_offset, None)
                self.open_segments.forget(segment)
        self.all[:] = row
        self._latest.clear()
        self._resize()
        return retired

    def _retire(self, segment: Segment) -> list[str]:
        self.open_segments.forget(segment)
        self.lost_tails.pop(segment.base_offset, None)
        return swap.retire(segment, with_snapshot=True)

    def _resize(self) -> None:
        self.size = sum(segment.size for segment in self.all)

    # -- the directory --------------------------------------------------------------------------------------

    def moved_to(self, directory: str) -> None:
        """The directory was renamed: the files have new paths."""
        for segment in self.all:
            segment.directory = directory

    def release(self) -> None:
        """Close all files: the directory is being removed or is offline."""
        self.cuts += 1  # another log may soon have files of these names
        for segment in self.all:
            self.open_segments.forget(segment)
            segment.release()
