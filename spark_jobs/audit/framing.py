"""The fields of a segment's batches that an audit trusts: of a sound batch its whole header; of a damaged one only its
position, and the range of offsets between its neighbours.

Offsets that only damaged bytes tell are `Blind`: nothing that other files say of them becomes a finding.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from logyard.broker.compiled import kernels as k
from logyard.broker.compiled.kernels import Array

NO_TIME = -(2**62)
OPEN_END = 2**63 - 1


class Blind(NamedTuple):
    """Offsets [first, last] of which nothing is known; `last` is OPEN_END if the segment's end is not known."""

    first: int
    last: int


class BlindOffsets:
    """All blind offsets of a log, merged: a look at a million spans costs no more than at a few."""

    def __init__(self, spans: Iterable[Blind]) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in sorted(spans):
            if self._lasts and first <= self._lasts[-1] + 1:
                self._lasts[-1] = max(self._lasts[-1], last)
            elif first <= last:
                self._firsts.append(first)
                self._lasts.append(last)

    def covers(self, first: int, last: int) -> bool:
        """Whether it contains all offsets of [first, last]."""
        at = bisect_right(self._firsts, first) - 1
        return at >= 0 and last <= self._lasts[at]

    def meets(self, first: int, last: int) -> bool:
        """Whether it contains any offset of [first, last]."""
        at = bisect_right(self._firsts, last) - 1
        return at >= 0 and first <= self._lasts[at]


NONE_BLIND = BlindOffsets(())


@dataclass(frozen=True, slots=True)
class Framed:
    """The batches of a segment in file order, an array per column; a damaged batch's time is NO_TIME.

    `first`: the segment's base offset; `end`: the position up to which batches could be framed; `is_whole`: whether
    that is the file's end.
    """

    position: Array
    base: Array
    last: Array
    max_timestamp: Array
    sound: Array
    first: int
    end: int
    is_whole: bool

    @property
    def last_offset(self) -> int:
        """The last batch's last offset, -1 if there is none."""
        return int(self.last[-1]) if len(self.last) else -1

    def blind(self) -> list[Blind]:
        """Return the offsets of damaged batches, and those after the last batch that could be framed."""
        rows = np.flatnonzero(~self.sound)
        spans = [Blind(int(self.base[row]), int(self.last[row])) for row in rows]
        if len(rows) and rows[-1] == len(self.sound) - 1:
            spans[-1] = Blind(spans[-1].first, OPEN_END)  # only its damaged header has its last offset
        if not self.is_whole:
            spans.append(Blind(max(self.last_offset + 1, self.first), OPEN_END))
        return spans


def framed(headers: Sequence[Array], sound: Sequence[Array], first: int, end: int, *, is_whole: bool) -> Framed:
    """Return the trusted view of a segment's batches; `first`, `end` and `is_whole` are as in `Framed`.

    :param headers: header rows (kernels.HEADER_COLUMNS), one array per chunk, in file order.
    :param sound: for each of those arrays, which batches have a right checksum.
    """
    rows = np.concatenate(headers) if headers else np.empty((0, k.HEADER_COLUMNS), np.int64)
    is_sound = np.concatenate(sound) if sound else np.empty(0, bool)
    base, last = rows[:, k.BASE_OFFSET], believed_last(rows, is_sound)
    # A message of format v0 or v1 stores only its last offset.
    old = ~is_sound[1:] & (rows[1:, k.MAGIC] < 2)
    base[1:] = np.where(old, last[:-1] + 1, base[1:])
    return Framed(
        position=rows[:, k.POSITION],
        base=base,
        last=last,
        max_timestamp=np.where(is_sound, rows[:, k.MAX_TIMESTAMP], NO_TIME),
        sound=is_sound,
        first=first,
        end=end,
        is_whole=is_whole,
    )


def believed_last(rows: Array, sound: Array) -> Array:
    """Return each batch's last offset; for a damaged batch, the offset before the next batch (its own base offset if
    it is the last)."""
    base = rows[:, k.BASE_OFFSET]
    following = np.append(base[1:] - 1, base[-1:])
    return np.where(sound, base + rows[:, k.LAST_DELTA], np.maximum(following, base))
