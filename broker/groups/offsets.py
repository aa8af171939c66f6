"""The committed offsets of one group, and which of them are past their retention (facts §16).

Rule 1: a plain change is appended to the log first, and applied when the log has acknowledged it.
Rule 2: what is committed in a transaction is pending from its append on, until the transaction's marker is replicated.
Rule 3: of two commits of one partition the one wins whose record lies later in the log, in whatever order they are
        acknowledged or their markers come: a load reads the same.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from logyard.broker.errors import ErrorCode
from logyard.broker.groups.events import OffsetCommit

# Topic and partition.
Place = tuple[str, int]
Places = AbstractSet[Place]
NOT_WRITTEN = -1


class Written(NamedTuple):
    """A commit, and the offset of the batch of the log that it came in."""

    base_offset: int
    commit: OffsetCommit


class Snapshot:
    """Offsets of a group at one moment: of the wanted partitions, all that are committed for None.

    A client may want a million partitions, of whatever numbers: to make one costs what the smaller side has, of those
    and of the group's.
    """

    def __init__(self, kept: "GroupOffsets", wanted: Places | None, *, require_stable: bool) -> None:
        committed = kept.committed
        self._wanted = wanted
        if wanted is None:
            self._commits = dict(committed)
        else:
            self._commits = {place: committed[place] for place in wanted & committed.keys()}
        self._unstable = kept.unstable_of(self._places) if require_stable else frozenset()

    @property
    def _places(self) -> Places:
        return self._commits.keys() if self._wanted is None else self._wanted

    def topics(self) -> Iterator[str]:
        """The topic of each partition, so that who looks at them may give others a turn in between."""
        return (topic for topic, _ in self._places)

    def __iter__(self) -> Iterator[tuple[ErrorCode, OffsetCommit]]:
        """An error code and a commit for each partition.

        A partition without a commit has offset -1; one whose offset is about to change has UNSTABLE_OFFSET_COMMIT and
        -1, if stable ones are required.
        """
        for place in self._places:
            if place in self._unstable:
                yield ErrorCode.UNSTABLE_OFFSET_COMMIT, OffsetCommit(*place, -1)
            else:
                yield ErrorCode.NONE, self._commits.get(place) or OffsetCommit(*place, -1)


class GroupOffsets:
    """`committed` has the valid offsets; `open`, by producer id, what open transactions have committed."""

    __slots__ = ("_changes", "_in_flight", "_last", "_written_at", "committed", "open")

    def __init__(self) -> None:
        self.committed: dict[Place, OffsetCommit] = {}
        self.open: dict[int, dict[Place, Written]] = {}
        self._changes: dict[int, Mapping[Place, OffsetCommit | None]] = {}
        self._in_flight: dict[Place, int] = {}
        # Where what is committed lies in the log, or its tombstone while other changes of that place are in flight.
        self._written_at: dict[Place, int] = {}
        self._last = 0

    def load(self, place: Place, written: Written) -> None:
        """Take what the log has as committed there."""
        self.committed[place] = written.commit
        self._written_at[place] = written.base_offset

    def unload(self, place: Place, producer_id: int | None) -> None:
        """The log has a tombstone for it, as part of the producer's transaction, or of none."""
        if producer_id is None:
            self.committed.pop(place, None)
            self._written_at.pop(place, None)
        elif producer_id in self.open:
            self.open[producer_id].pop(place, None)
            if not self.open[producer_id]:
                del self.open[producer_id]

    # Plain changes

    def begin(self, change: Mapping[Place, OffsetCommit | None]) -> int:
        """Note a change (None: a tombstone) whose append begins now. Returns its number, for `end`."""
        self._last += 1
        self._changes[self._last] = change
        for place in change:
            self._in_flight[place] = self._in_flight.get(place, 0) + 1
        return self._last

    def end(self, number: int, base_offset: int) -> None:
        """Apply the change if it was written: the log has answered. NOT_WRITTEN: it was not."""
        for place, commit in self._changes.pop(number).items():
            left = self._in_flight.pop(place) - 1
            if left:
                self._in_flight[place] = left
            if base_offset >= self._written_at.get(place, 0):
                self._written_at[place] = base_offset
                if commit is None:
                    self.committed.pop(place, None)
                else:
                    self.committed[place] = commit
            if not left and place not in self.committed:
                self._written_at.pop(place, None)

    def drop(self, commits: Mapping[Place, OffsetCommit]) -> None:
        """Forget these commits without writing to the log; later ones of the same partitions stay."""
        for place, commit in commits.items():
            if self.committed.get(place) is commit:
                del self.committed[place]
                self._written_at.pop(place, None)

    # Transactions

    def take_open(self, producer_id: int, base_offset: int, commits: Mapping[Place, OffsetCommit]) -> None:
        """These lie in the log now, as part of the producer's transaction."""
        pending = self.open.setdefault(producer_id, {})
        for place, commit in commits.items():
            pending[place] = Written(base_offset, commit)

    def end_transaction(self, producer_id: int, marker_offset: int, *, committed: bool) -> bool:
        """The producer's marker is replicated; returns whether something is pending still: what lies behind it."""
        pending = self.open.pop(producer_id, {})
        behind = {place: written for place, written in pending.items() if written.base_offset > marker_offset}
        for place, written in pending.items() if committed else ():
            if place not in behind and (place not in self.committed or self._written_at[place] < written.base_offset):
                self.load(place, written)
        if behind:
            self.open[producer_id] = behind
        return bool(behind)

    def drop_open(self, places: Collection[Place]) -> None:
        """Forget what transactions have committed there: the partitions are deleted.

        For each open transaction it costs what the smaller side has.
        """
        for producer_id, pending in list(self.open.items()):
            for place in [p for p in pending if p in places] if len(pending) < len(places) else places:
                pending.pop(place, None)
            if not pending:
                del self.open[producer_id]

    # Questions

    def unstable_of(self, places: Places) -> frozenset[Place]:
        """Those of the places whose commit may be replaced by one that was sent already (KIP-447).

        For each open transaction it costs what the smaller one has.
        """
        found = places & self._in_flight.keys()
        for commits in self.open.values():
            found |= places & commits.keys()
        return frozenset(found)

    @property
    def known(self) -> list[Place]:
        """The partitions for which the log has an offset, or is being given one; without those of open transactions."""
        return list({**self.committed, **self._in_flight})

    @property
    def known_count(self) -> int:
        """How many partitions are `known`; it costs what is in flight."""
        return len(self.committed) + sum(place not in self.committed for place in self._in_flight)

    def known_of(self, places: Mapping[Place, object]) -> list[Place]:
        """Those of the places that are `known`, in an order without hashes; it costs what the smaller side has."""
        if len(places) > len(self.committed) + len(self._in_flight):
            return [place for place in self.known if place in places]
        return [place for place in places if place in self.committed or place in self._in_flight]

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
    unstable = offsets.unstable_of(offsets.committed.keys())
    for place, commit in offsets.committed.items():
        since = commit.commit_ms if begun_ms is None else max(begun_ms, commit.commit_ms)
        ends_ms = commit.expire_ms if commit.expire_ms >= 0 else since + retention_ms
        if ends_ms <= now_ms and not is_kept(place[0]) and place not in unstable:
            found.append(place)
    return found
