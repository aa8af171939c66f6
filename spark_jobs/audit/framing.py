"""What an audit believes of a segment's batches: of a sound one all that its header says; of a damaged one only where
it lies, and where its neighbours end and begin.

What is not believed accuses nobody: offsets that only damaged bytes tell of are `Blind`, and what other files say of
them is not held against the log.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from logyard.spark_jobs.segments import kernels as k
from logyard.spark_jobs.segments.kernels import Array

NO_TIME = -(2**62)
OPEN_END = 2**63 - 1


class Blind(NamedTuple):
    """Offsets [first, last] of which nothing is known; OPEN_END: to the segment's end, wherever that is."""

    first: int
    last: int

    def covers(self, first: int, last: int) -> bool:
        """Whether all offsets of [first, last] are among them."""
        return self.first <= first and last <= self.last

    def meets(self, first: int, last: int) -> bool:
        """Whether any offset of [first, last] is among them."""
        return self.first <= last and first <= self.last


@dataclass(frozen=True, slots=True)
class Framed:
    """The batches of a segment in the order of the file; times are NO_TIME where they are not believed.

    `end`: up to where bytes are batches; `is_whole`: that is the file's end.
    """

    position: Array
    base: Array
    last: Array
    max_timestamp: Array
    sound: Array
    end: int
    is_whole: bool

    @property
    def last_offset(self) -> int:
        """The last batch's last offset, -1 where there is none."""
        return int(self.last[-1]) if len(self.last) else -1

    def blind(self) -> list[Blind]:
        """Return what is not known: damaged batches, and what lies behind the last one that could be framed."""
        rows = np.flatnonzero(~self.sound)
        spans = [Blind(int(self.base[row]), int(self.last[row])) for row in rows]
        if len(rows) and rows[-1] == len(self.sound) - 1:
            spans[-1] = Blind(spans[-1].first, OPEN_END)  # how far it reached only its header says
        if not self.is_whole:
            spans.append(Blind(self.last_offset + 1, OPEN_END))
        return spans


def framed(headers: Sequence[Array], sound: Sequence[Array], end: int, *, is_whole: bool) -> Framed:
    """Return what is believed of batches, chunk by chunk as they were read; `sound`: whose checksum is right."""
    rows = np.concatenate(headers) if headers else np.empty((0, k.HEADER_COLUMNS), np.int64)
    is_sound = np.concatenate(sound) if sound else np.empty(0, bool)
    base, last = rows[:, k.BASE_OFFSET], believed_last(rows, is_sound)
    # A damaged message of the old formats says its last offset only.
    old = ~is_sound[1:] & (rows[1:, k.MAGIC] < 2)
    base[1:] = np.where(old, last[:-1] + 1, base[1:])
    return Framed(
        position=rows[:, k.POSITION],
        base=base,
        last=last,
        max_timestamp=np.where(is_sound, rows[:, k.MAX_TIMESTAMP], NO_TIME),
        sound=is_sound,
        end=end,
        is_whole=is_whole,
    )


def believed_last(rows: Array, sound: Array) -> Array:
    """Return each batch's last offset: of a damaged one the offset before the next batch, its own first where none
    follows."""
    base = rows[:, k.BASE_OFFSET]
    following = np.append(base[1:] - 1, base[-1:])
    return np.where(sound, base + rows[:, k.LAST_DELTA], np.maximum(following, base))
