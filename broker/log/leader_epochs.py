"""The start offset of each leader epoch: the cache behind `leader-epoch-checkpoint` (KIP-101, facts §11).

Rule 1: epochs and start offsets both increase from entry to entry.
Rule 2: `end_offset_for` returns the last offset + 1 that was written under an epoch, or "undefined".
Rule 3: a message of format v0 or v1 removes all entries before it. It names no epoch, so it would count as written
under the last known one; a follower with a later epoch would then truncate it, committed or not.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    """A leader epoch, and the first offset that was or would be written under it."""

    epoch: int
    start_offset: int


Save = Callable[[Sequence[EpochEntry]], None]


def _forget(_entries: Sequence[EpochEntry]) -> None:
    """Save nothing, for caches that exist only in memory."""


class EpochCache:
    """The epochs of one log, oldest first; every change is passed to `save` first, and not made if that raises.

    `log_end_offset()` gives the end of the latest epoch, which is still being written.
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
        """The newest known epoch; None if the log has none."""
        return self._entries[-1].epoch if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` begins at `start_offset`; entries that contradict it are dropped.

        Nothing happens if the latest entry has this epoch at this offset or a lower one.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} at offset {start_offset}: neither may be negative")
        if self._entries:
            last = self._entries[-1]
            if last.epoch == epoch and start_offset >= last.start_offset:
                return
        keep = list(self._entries)
        while keep and (keep[-1].epoch >= epoch or keep[-1].start_offset >= start_offset):
            keep.pop()
        keep.append(EpochEntry(epoch, start_offset))
        self._replace(keep)

    def follow(self, epochs: Iterable[tuple[int, int]]) -> None:
        """Assign the (epoch, start offset) of appended batches that are newer than the latest epoch."""
        latest = self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH
        for epoch, start_offset in epochs:
            if epoch > latest:
                self.assign(epoch, start_offset)
                latest = epoch

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) for a follower's OffsetForLeaderEpoch; (-1, -1) if it is not known.

        The returned epoch is the largest known one that is not above `epoch`.
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
            # Older than every known epoch: its records end where the first known epoch starts.
            return epoch, self._entries[0].start_offset
        return self._entries[above - 1].epoch, self._entries[above].start_offset

    def epoch_of(self, offset: int) -> int | None:
        """Return the epoch under which `offset` was (or will be) written; None below the first entry."""
        entries = self._entries
        if entries and entries[-1].start_offset <= offset:
            return entries[-1].epoch  # mostly
        above = bisect_right(entries, offset, key=lambda entry: entry.start_offset)
        return entries[above - 1].epoch if above else None

    def truncate_from_end(self, offset: int) -> None:
        """Forget the epochs that begin at `offset` or above."""
        if self._entries and self._entries[-1].start_offset >= offset:
            keep = bisect_left(self._entries, offset, key=lambda entry: entry.start_offset)
            self._replace(self._entries[:keep])

    def truncate_from_start(self, offset: int) -> None:
        """Forget the epochs that end at or below `offset`; the oldest one kept then starts there."""
        below = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        if below == 0 or self._entries[below - 1].start_offset == offset == self._entries[0].start_offset:
            return
        self._replace([EpochEntry(self._entries[below - 1].epoch, offset), *self._entries[below:]])

    def adopt(self, entries: Iterable[EpochEntry]) -> None:
        """Take over the epochs of a log with the same records."""
        taken = list(entries)
        if taken != self._entries:
            self._replace(taken)

    def clear(self) -> None:
        """Forget everything: the log restarts elsewhere, or the epochs of its records are no longer known."""
        if self._entries:
            self._replace([])

    def _replace(self, entries: list[EpochEntry]) -> None:
        # Saved first: what is refused is tried again, and a change that is made already would not be saved again.
        self._save(entries)
        self._entries = entries


class EpochRun(NamedTuple):
    """Successive batches of one epoch in the log."""

    epoch: int
    first_offset: int
    last_offset: int


def reconcile(
    entries: Iterable[EpochEntry], runs: Iterable[EpochRun], base_offset: int, known_from: int = 0
) -> list[EpochEntry]:
    """Return the epochs of a log whose batches from `base_offset` on were read again.

    `known_from` is the offset after its last message of an old format: nothing below it counts. Entries below
    `base_offset` are kept. An entry at or above it is kept only if the batches agree with it: no batch before it has
    its epoch or a later one, none after it an earlier one. So an epoch whose batches were all compacted away keeps its
    start, and an epoch that a truncation removed does not come back.
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
