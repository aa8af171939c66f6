"""What one group has committed, and what of it has had its time.

A change is appended to the log first and counts when the log has acknowledged it. Rule 1: changes of one partition
count in the order in which they were appended, whatever the order in which they are acknowledged: as a load would read
them. Rule 2: what a transaction has committed lies apart until its marker comes.
"""

from collections.abc import Callable, Iterable, Mapping

from logyard.broker.groups.events import OffsetCommit

# Topic and partition.
Place = tuple[str, int]


class GroupOffsets:
    """`committed` is what counts now; `open` what transactions that have not ended committed, by producer id."""

    __slots__ = ("_changes", "_last", "_newest", "_under_way", "committed", "open")

    def __init__(self) -> None:
        self.committed: dict[Place, OffsetCommit] = {}
        self.open: dict[int, dict[Place, OffsetCommit]] = {}
        self._changes: dict[int, Mapping[Place, OffsetCommit | None]] = {}
        self._newest: dict[Place, int] = {}
        self._under_way: dict[Place, int] = {}
        self._last = 0

    def begin(self, change: Mapping[Place, OffsetCommit | None]) -> int:
        """Note a change that is being appended just now, None for a tombstone; `end` wants the number."""
        self._last += 1
        self._changes[self._last] = change
        for place in change:
            self._under_way[place] = self._under_way.get(place, 0) + 1
        return self._last

    def end(self, number: int, *, written: bool) -> None:
        """The log's answer to that change has come."""
        for place, commit in self._changes.pop(number).items():
            self._under_way[place] -= 1
            if not self._under_way[place]:
                del self._under_way[place]
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
        """Forget these very commits without the log; later ones of the same places stay."""
        for place, commit in commits.items():
            if self.committed.get(place) is commit:
                del self.committed[place]

    def is_unstable(self, place: Place) -> bool:
        """Whether what is committed there may be replaced by what somebody has sent already (KIP-447)."""
        return place in self._under_way or any(place in commits for commits in self.open.values())

    @property
    def known(self) -> list[Place]:
        """Every place that the log has, or will have, an offset for; those of open transactions are left out."""
        return list({**self.committed, **self._under_way})

    @property
    def is_hollow(self) -> bool:
        return not self.committed and not self._changes and not self.open


def outlived(
    offsets: GroupOffsets, begun_ms: int | None, now_ms: int, retention_ms: int, is_kept: Callable[[str], bool]
) -> list[Place]:
    """Which commits are older than the retention (wall-clock milliseconds).

    The retention of each begins with its commit, but not before `begun_ms`. (Kafka looks at that alone, and loses at
    once what is committed for a group that has been empty for long.) An explicit expiry, as old clients ask for, goes
    before both. Topics that `is_kept` names stay, and so does what is about to be
    replaced.
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
    """Which of these partitions, that were deleted, the group has an offset of."""
    known = set(offsets.known)
    return [place for place in gone if place in known]
