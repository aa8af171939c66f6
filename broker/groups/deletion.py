"""Deleted partitions, whose offsets go from one group after the other."""

from collections.abc import Iterator

from logyard.broker.groups.members import Group
from logyard.broker.groups.offsets import Place


class Deletion:
    """`left` has the groups that were there at the deletion and that nobody has begun with, by name."""

    def __init__(self, places: dict[Place, None], left: dict[str, Group]) -> None:
        self.places = places
        self.left = left
        self._now: Group | None = None
        self._work: Iterator[int] = iter(())

    def begin(self, group: Group, work: Iterator[int]) -> Iterator[int]:
        """Note that `work` is done for this group now, with turns for others between its steps. Returns it."""
        self._now, self._work = group, work
        return work

    def begun(self, group_id: str) -> Iterator[int]:
        """Return what has to be done yet for a group that was begun with."""
        return self._work if self._now is not None and self._now.group_id == group_id else iter(())
