"""What is cached of one segment: its indexes once they are loaded, and where recent appends and reads ended.

Rule: whoever cuts a segment, or releases it, gives it a new `SegmentCache` and never changes the old one. A thread in
the middle of a look-up keeps the one it began with; what it finds after that is not used by anybody else.
"""

from logyard.broker.log.segment.index import OffsetIndex, TimeIndex

# Twice as many at most, for every open segment: enough for readers at the end and for the high watermark.
POSITIONS_KEPT = 32


class SegmentCache:
    """`indexes` is None until they are loaded; `is_mended` says that they are not those of the files, which are bad."""

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
        """Return the cached position, None where there is none."""
        found = self._positions.get(offset)
        return self._older.get(offset) if found is None else found

    @property
    def positions(self) -> dict[int, int]:
        """All cached positions by offset."""
        return {**self._older, **self._positions}
