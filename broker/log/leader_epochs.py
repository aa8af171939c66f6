"""Which leader epoch began at which offset: the cache behind `leader-epoch-checkpoint` (KIP-101, facts §11).

Rule 1: epochs and start offsets both increase from entry to entry.
Rule 2: `endOffsetFor` answers the last offset + 1 that was written under an epoch, or says "undefined".
Rule 3: a message of format v0 or v1 ends all that is known before it. It names no epoch, so it would count as written
under the last one known here; a follower that knows a later one would then cut it off, committed or not.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    """One leader epoch and the first offset written (or that would be written) under it."""

    epoch: int
    start_offset: int


Save = Callable[[Sequence[EpochEntry]], None]


def _forget(_entries: Sequence[EpochEntry]) -> None:
    """Keep nothing: for caches that live in memory alone."""


class EpochCache:
    """The epochs of one log, oldest first; every change is handed to `save` at once.

    `log_end_offset` is asked for the end of the latest epoch, which is still being written.
    """

    __slots__ = ("_entries", "_log_end_offset", "_save")

    def __init__(
        self,
        entries: Iterable[EpochEntry] = (),
        *,
        log_end_offset: Callable[[], int],
        save: Save = _forget,
    ) -> None:
        self._entries = list(entries)
        self._log_end_offset = log_end_offset
        self._save = save

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def latest(self) -> int | None:
        """The newest epoch known, None where the log has none."""
        return self._entries[-1].epoch if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` begins at `start_offset`; entries it contradicts are dropped.

        Nothing happens when the latest entry has this epoch at this offset or an earlier one.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} at offset {start_offset}: neither may be negative")
        if self._entries:
            last = self._entries[-1]
            if last.epoch == epoch and start_offset >= last.start_offset:
                return
        keep = self._entries
        while keep and (keep[-1].epoch >= epoch or keep[-1].start_offset >= start_offset):
            keep.pop()
        keep.append(EpochEntry(epoch, start_offset))
        self._save(keep)

    def follow(self, epochs: Iterable[tuple[int, int]]) -> None:
        """Assign the (epoch, start offset) of appended batches that are newer than the latest epoch."""
        latest = self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH
        for epoch, start_offset in epochs:
            if epoch > latest:
                self.assign(epoch, start_offset)
                latest = epoch

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) for what a follower asks; (-1, -1) where it cannot be told.

        The epoch in the answer is the largest known one that is not above the asked one.
        """
        if epoch == UNDEFINED_EPOCH or not self._entries:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        latest = self._entries[-1].epoch
        if epoch == latest:
            return epoch, self._log_end_offset()
        if epoch > latest:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        above = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if above == 0:
            # Older than all we know: what it wrote ends where our first epoch starts.
            return epoch, self._entries[0].start_offset
        return self._entries[above - 1].epoch, self._entries[above].start_offset

    def epoch_of(self, offset: int) -> int | None:
        """Return the epoch that `offset` was (or will be) written under, None below the first entry."""
        above = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[above - 1].epoch if above else None

    def truncate_from_end(self, offset: int) -> None:
        """Forget the epochs that begin at `offset` or above."""
        if self._entries and self._entries[-1].start_offset >= offset:
            keep = bisect_left(self._entries, offset, key=lambda entry: entry.start_offset)
            del self._entries[keep:]
            self._save(self._entries)

    def truncate_from_start(self, offset: int) -> None:
        """Forget the epochs that end at or below `offset`; the oldest one kept then starts there."""
        below = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        if below == 0 or self._entries[below - 1].start_offset == offset == self._entries[0].start_offset:
            return
        self._entries[:below] = [EpochEntry(self._entries[below - 1].epoch, offset)]
        self._save(self._entries)

    def adopt(self, entries: Iterable[EpochEntry]) -> None:
        """Take over the epochs of a log with the same records."""
        taken = list(entries)
        if taken != self._entries:
            self._entries = taken
            self._save(taken)

    def clear(self) -> None:
        """Forget everything: the log restarts elsewhere, or nothing tells any more what was written under which."""
        if self._entries:
            self._entries.clear()
            self._save(self._entries)


class EpochRun(NamedTuple):
    """Batches of one epoch that follow each other in the log."""

    epoch: int
    first_offset: int
    last_offset: int


def reconcile(
    entries: Iterable[EpochEntry], runs: Iterable[EpochRun], base_offset: int, known_from: int = 0
) -> list[EpochEntry]:
    """Return the epochs of a log whose batches from `base_offset` on were read again.

    `known_from` is the offset behind its last message of an old format: nothing below it counts. Entries below
    `base_offset` are taken as they are. Above, an entry stands only where the batches agree with it: none before it of
    its epoch or a later one, none behind it of an earlier one. So an epoch whose batches were all compacted away keeps
    its start, and one that a truncation cut off does not come back.
    """
    entries = [entry for entry in entries if entry.start_offset >= known_from]
    runs = [run for run in runs if run.first_offset >= known_from]
    kept = [entry for entry in entries if entry.start_offset < base_offset]
    above = [entry for entry in entries if entry.start_offset >= base_offset]
    behind = base_offset - 1
    for run in runs:
        for entry in above:
            fits = behind < entry.start_offset <= run.first_offset and entry.epoch <= run.epoch
            if fits and (not kept or entry.epoch > kept[-1].epoch):
                _put(kept, entry)
        if not kept or kept[-1].epoch < run.epoch:
            _put(kept, EpochEntry(run.epoch, run.first_offset))
        behind = run.last_offset
    return kept


def _put(kept: list[EpochEntry], entry: EpochEntry) -> None:
    while kept and kept[-1].start_offset >= entry.start_offset:
        kept.pop()  # an epoch under which nothing was written
    kept.append(entry)
