"""The transactions of one log that hold its last stable offset back: open ones, and ended ones not yet replicated.

Each batch of a transaction may begin one, and each marker ends one, so no step depends on how many are open: the
smallest offsets are at the top of heaps, in which entries that no longer count stay until they come to the top.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush


class Unstable:
    """`open` has the first offset of each open transaction, by producer id; change it by `begin` and `end` only."""

    __slots__ = ("_begun", "_ended", "open")

    def __init__(self, opened: Iterable[tuple[int, int]] = ()) -> None:
        self.open: dict[int, int] = dict(opened)
        self._begun: list[tuple[int, int]] = []  # (first offset, producer id), also of some that have ended
        self._ended: list[tuple[int, int]] = []  # (first offset, offset of the marker)
        self._rebuild()

    def begin(self, producer_id: int, first_offset: int) -> None:
        """The producer's transaction begins there, whatever was open before."""
        self.open[producer_id] = first_offset
        if len(self._begun) > 2 * len(self.open) + 100:
            self._rebuild()
        else:
            heappush(self._begun, (first_offset, producer_id))

    def end(self, producer_id: int) -> None:
        """The producer has no transaction open."""
        self.open.pop(producer_id, None)

    def hold(self, first_offset: int, marker_offset: int) -> None:
        """A transaction counts although it has ended, until the high watermark has passed its marker."""
        heappush(self._ended, (first_offset, marker_offset))

    def high_watermark_moved(self, high_watermark: int) -> bool:
        """Forget what it has passed; return whether that may change `first_offset`."""
        ended = self._ended
        moved = False
        while ended and ended[0][1] < high_watermark:
            heappop(ended)
            moved = True
        return moved

    def first_offset(self) -> int | None:
        """Return the smallest first offset of all of them, None if there are none."""
        oldest = self.oldest()
        if oldest is None:
            return self._ended[0][0] if self._ended else None
        first = self.open[oldest]
        return min(first, self._ended[0][0]) if self._ended else first

    def oldest(self) -> int | None:
        """Return the producer id of the open transaction that began first, None if none is open."""
        begun, opened = self._begun, self.open
        while begun and opened.get(begun[0][1]) != begun[0][0]:
            heappop(begun)
        return begun[0][1] if begun else None

    def first_offset_besides(self, producer_id: int) -> int | None:
        """Return the smallest first offset of the other producers' open transactions."""
        if self.oldest() != producer_id:
            return self._begun[0][0] if self._begun else None
        own = heappop(self._begun)
        other = self.oldest()
        heappush(self._begun, own)
        return None if other is None else self.open[other]

    def _rebuild(self) -> None:
        self._begun = [(first, producer_id) for producer_id, first in self.open.items()]
        heapify(self._begun)
