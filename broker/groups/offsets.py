"""The committed offsets of one group, and which of them are past their retention (facts §16).

A change is appended to the log first, and applied when the log has acknowledged it.
Rule 1: the change that was appended last wins, in whatever order they are acknowledged: a load reads the same.
Rule 2: what a transaction has committed is kept apart until its marker comes.
"""

from collections.abc import Callable, Iterable, Mapping

from logyard.broker.groups.events import OffsetCommit

# Topic and partition.
Place = tuple[str, int]


class GroupOffsets:
    """`committed` has the valid offsets; `open`, by producer id, what open transactions have committed."""

    __slots__ = ("_changes", "_in_flight", "_last", "_newest", "committed", "open")

    def __init__(self) -> None:
        self.committed: dict[Place, OffsetCommit] = {}
        self.open: dict[int, dict[Place, OffsetCommit]] = {}
        self._changes: dict[int, Mapping[Place, OffsetCommit | None]] = {}
        self._newest: dict[Place, int] = {}
        self._in_flight: dict[Place, int] = {}
        self._last = 0

    def begin(self, change: Mapping[Place, OffsetCommit | None]) -> int:
        """Note a change (None: a tombstone) whose append begins now. Returns its number, for `end`."""
        self._last += 1
        self._changes[self._last] = change
        for place in change:
            self._in_flight[place] = self._in_flight.get(place, 0) + 1
        return self._last

    def end(self, number: int, *, written: bool) -> None:
        """Apply the change if it was `written`: the log has answered."""
        for place, commit in self._changes.pop(number).items():
            self._in_flight[place] -= 1
            if not self._in_flight[place]:
                del self._in_flight[place]
            if not written or self._newest.get(place, 0) > number:
                continue
            self._newest[place] = number
            if commit is None:
                self.committed.pop(place, None)
            else:
                self.committed[place] = commit
        if not self._changes:
            self._newest.clear()

    def drop(self, commits: Mapping[Place, OffsetCommit]) -> None:
        """Forget these commits without writing to the log; later ones of the same partitions stay."""
        for place, commit in commits.items():
            if self.committed.get(place) is commit:
                del self.committed[place]

    def is_unstable(self, place: Place) -> bool:
        """Whether a commit that was sent already may replace the one of this partition (KIP-447)."""
        return place in self._in_flight or any(place in commits for commits in self.open.values())

    @property
    def known(self) -> list[Place]:
        """The partitions for which the log has an offset, or is being given one; without those of open transactions."""
        return list({**self.committed, **self._in_flight})

    @property
    def is_hollow(self) -> bool:
        return not self.committed and not self._changes and not self.open


def outlived(
    offsets: GroupOffsets, begun_ms: int | None, now_ms: int, retention_ms: int, is_kept: Callable[[str], bool]
) -> list[Place]:
    """Return the partitions whose commits are past their retention. Times are wall-clock milliseconds.

    The retention of a commit begins with the commit, but not before `begun_ms`. (Kafka uses `begun_ms` alone, and so
    expires at once what is committed for a group that has long been empty.) An expiry time that an old client gave
    overrides both. Topics for which `is_kept` is true do not expire, nor does a commit that is about to be replaced.
    """
    found = []
    for place, commit in offsets.committed.items():
        if is_kept(place[0]) or offsets.is_unstable(place):
            continue
        since = commit.commit_ms if begun_ms is None else max(begun_ms, commit.commit_ms)
        ends_ms = commit.expire_ms if commit.expire_ms >= 0 else since + retention_ms
        if ends_ms <= now_ms:
            found.append(place)
    return found


def deleted(offsets: GroupOffsets, gone: Iterable[Place]) -> list[Place]:
    """Return those of the deleted partitions `gone` for which the group has an offset."""
    known = set(offsets.known)
    return [place for place in gone if place in known]
