"""Deleted partitions, whose offsets go from one group after the other; or offsets of one group that go in steps.

The steps are batches of tombstones.
"""

import inspect
from collections import OrderedDict
from collections.abc import Generator, Iterator, Mapping, Sequence

from logyard.broker.groups import record_format
from logyard.broker.groups.members import Group
from logyard.broker.groups.offsets import Place
from logyard.broker.groups.ports import KeyValue

# Of one batch, which has to be shorter than max.message.bytes. Names may have 32 KB each; one is taken always.
TOMBSTONES_AT_ONCE = 1000
TOMBSTONE_BYTES_AT_ONCE = 64 * 1024
# An append takes as long as to look at so many commits, and each tombstone of it.
APPEND_COST, TOMBSTONE_COST = 250, 4


def tombstones(group_id: str, places: Sequence[Place], start: int) -> list[KeyValue]:
    """Return those of the places from `start` on, as many as a batch takes."""
    found: list[KeyValue] = []
    size = 0
    for topic, partition in places[start : start + TOMBSTONES_AT_ONCE]:
        key = record_format.offset_key(group_id, topic, partition)
        size += len(key)
        if found and size > TOMBSTONE_BYTES_AT_ONCE:
            break
        found.append((key, None))
    return found


class Deletion:
    """The steps of a deletion in one group."""

    def __init__(self) -> None:
        self._now: Group | None = None
        self._work: Generator[int, None, None] | None = None

    def begin(self, group: Group, work: Generator[int, None, None]) -> Iterator[int]:
        """Note that `work` is done for this group now, with turns for others between its steps. Returns it."""
        self._now, self._work = group, work
        return work

    def begun(self, group_id: str) -> Iterator[int]:
        """Return what has to be done yet for a group that was begun with.

        Nothing in the middle of a step: an append may tell of markers that it has replicated.
        """
        work = self._work
        if work is None or self._now is None or self._now.group_id != group_id:
            return iter(())
        return iter(()) if inspect.getgeneratorstate(work) == inspect.GEN_RUNNING else work

    def finish(self, group_id: str) -> None:
        """Do now what has to be done yet for a group that was begun with."""
        for _ in self.begun(group_id):
            pass


class Deletions(Deletion):
    """Deletions of partitions that are waited for, and the one group that has its turn.

    A group that is there at one of them has to catch up with that and all later ones; groups that come later have
    nothing of what was deleted. Thousands may wait for thousands of groups, so each group is here once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._gone: list[dict[Place, None]] = []
        self._behind: OrderedDict[str, tuple[Group, int]] = OrderedDict()  # with the first that it has not caught up

    def add(self, gone: dict[Place, None], groups: Mapping[str, Group]) -> None:
        """Have these groups, by name, catch up with another deletion."""
        for name, group in groups.items():
            known = self._behind.get(name)
            if known is None or known[0] is not group:
                self._behind[name] = group, len(self._gone)
                self._behind.move_to_end(name)
        if self._behind:
            self._gone.append(gone)

    def next(self) -> tuple[Group, list[dict[Place, None]]] | None:
        """Take the group that has waited longest, with what is gone; None if none waits."""
        return self.take(next(iter(self._behind))) if self._behind else None

    def take(self, group_id: str) -> tuple[Group, list[dict[Place, None]]] | None:
        """Take a group, as `next` does; None if it does not wait."""
        behind = self._behind.pop(group_id, None)
        if behind is None:
            return None
        group, first = behind
        gone = self._gone[first:]
        if not self._behind:
            self._gone.clear()
        return group, gone
