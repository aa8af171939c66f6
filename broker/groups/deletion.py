"""Deleted partitions, whose offsets go from one group after the other; or offsets of one group that go in steps."""

import inspect
from collections.abc import Generator, Iterator

from logyard.broker.groups.members import Group
from logyard.broker.groups.offsets import Place


class Deletion:
    """`left` has the groups that were there at the deletion and that nobody has begun with, by name."""

    def __init__(self, places: dict[Place, None], left: dict[str, Group]) -> None:
        self.places = places
        self.left = left
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
