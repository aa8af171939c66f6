"""Deleted partitions, whose offsets go from one group after the other; or offsets of one group that go in steps.

The steps are batches of tombstones.
"""

import inspect
from collections.abc import Generator, Iterator, Sequence

from logyard.broker.groups import record_format
from logyard.broker.groups.members import Group
from logyard.broker.groups.offsets import Place
from logyard.broker.groups.ports import KeyValue

# Of one batch, which has to be shorter than max.message.bytes. Names may have 32 KB each; one is taken always.
TOMBSTONES_AT_ONCE = 1000
TOMBSTONE_BYTES_AT_ONCE = 64 * 1024


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
