"""What is cached of one segment: its loaded indexes, and the positions where recent appends and reads ended.

Rule: cutting or releasing a segment gives it a new `SegmentCache`; the old one is never changed. A thread that is in
the middle of a look-up keeps the old one, and nobody else uses what it adds to it.
"""

from logyard.broker.log.segment.index import OffsetIndex, TimeIndex

# Each open segment caches at most twice as many: enough for readers at its end and for the high watermark.
POSITIONS_KEPT = 32


class SegmentCache:
    """`indexes` is None until they are loaded; `is_mended` says that they were rebuilt because the files are
    damaged."""

    __slots__ = ("_older", "_positions", "indexes", "is_mended")

    def __init__(self, indexes: tuple[OffsetIndex, TimeIndex] | None = None) -> None:
        self.indexes = indexes
        self.is_mended = False
        # Offset → position of the first batch at or above it.
        self._positions: dict[int, int] = {}
        self._older: dict[int, int] = {}

    def remember(self, offset: int, position: int) -> None:
        """Cache that the first batch that reaches `offset` is at `position`."""
        positions = self._positions
        positions[offset] = position
        if len(positions) >= POSITIONS_KEPT:
            self._older, self._positions = positions, {}

    def position_of(self, offset: int) -> int | None:
        """Return the cached position; None if there is none."""
        found = self._positions.get(offset)
        return self._older.get(offset) if found is None else found

    @property
    def positions(self) -> dict[int, int]:
        """All cached positions by offset."""
        return {**self._older, **self._positions}
