"""The groups that this broker coordinates, and whether they may be served now."""

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import chain

from logyard.broker.errors import ErrorCode
from logyard.broker.groups.members import Group
from logyard.broker.groups.ports import OffsetsLog
from logyard.broker.metadata.coordinators import partition_for

OpenGroups = dict[int, dict[str, None]]
"""By producer id, the names of the groups that may have commits of its transaction."""


@dataclass(slots=True, eq=False)
class LedPartition:
    """A partition of the offsets topic, from an election of this broker to its resignation.

    It may have a hundred thousand groups: to begin, load and give it up takes no time for each.
    """

    groups: dict[str, Group] = field(default_factory=dict)
    open: OpenGroups = field(default_factory=dict)
    is_loaded: bool = False


class Roster:
    """The groups of the offsets partitions that this broker leads.

    A group may be dropped and another of its name added: after each await, code checks that its group is still the
    one in here (`has`).
    """

    def __init__(self, offsets_log: OffsetsLog) -> None:
        self._log = offsets_log
        self._led: dict[int, LedPartition] = {}

    def partition_for(self, group_id: str) -> int:
        return partition_for(group_id, self._log.partition_count)

    def availability(self, group_id: str) -> ErrorCode:
        """Return NONE if this broker may serve the group now, else NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        led = self._led.get(self.partition_for(group_id))
        if led is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE if led.is_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    @property
    def is_loading(self) -> bool:
        return not all(led.is_loaded for led in self._led.values())

    # Groups

    def all(self) -> list[Group]:
        return list(chain.from_iterable(led.groups.values() for led in self._led.values()))

    def by_name(self) -> dict[str, Group]:
        """Return those that are here now."""
        found: dict[str, Group] = {}
        for led in self._led.values():
            found |= led.groups
        return found

    def get(self, group_id: str) -> Group | None:
        led = self._led.get(self.partition_for(group_id))
        return None if led is None else led.groups.get(group_id)

    def has(self, group: Group) -> bool:
        """Whether this object is still the group of its name."""
        led = self._led.get(group.partition)
        return led is not None and led.groups.get(group.group_id) is group

    def outcome_without(self, group: Group) -> ErrorCode:
        """What came of a deletion whose group is not here any more: NONE if somebody else has deleted it."""
        code = self.availability(group.group_id)
        is_another = code is ErrorCode.NONE and self.get(group.group_id) is not None
        return ErrorCode.NOT_COORDINATOR if is_another else code

    def add(self, group: Group) -> None:
        """Serve a group of a partition that may be served (`availability`)."""
        group.partition = self.partition_for(group.group_id)
        self._led[group.partition].groups[group.group_id] = group

    def drop(self, group: Group) -> None:
        if self.has(group):
            del self._led[group.partition].groups[group.group_id]

    def drop_if_nothing(self, group: Group) -> None:
        """Drop a group that is empty and of which nothing was ever stored (say, all its members were refused)."""
        if group.generation == 0 and group.is_empty:
            self.drop(group)

    # Commits of open transactions

    def note_open(self, group: Group, producer_id: int) -> None:
        """A group that is served has commits of this producer's transaction."""
        self._led[group.partition].open.setdefault(producer_id, {})[group.group_id] = None

    def forget_open(self, group: Group, producer_id: int) -> None:
        """It has none of them any more."""
        led = self._led.get(group.partition)
        names = led.open.get(producer_id) if led is not None else None
        if led is not None and names is not None:
            names.pop(group.group_id, None)
            if not names:
                del led.open[producer_id]

    def with_open(self, partition: int, producer_id: int) -> list[Group]:
        """Return the groups of a partition that have commits of the producer's transaction."""
        led = self._led.get(partition)
        return [] if led is None else [led.groups[name] for name in led.open.get(producer_id, ()) if name in led.groups]

    # Partitions

    def begin(self, partition: int) -> tuple[LedPartition, Collection[Group]]:
        """This broker leads the partition, and has to load it. Returns it, and the groups that were dropped."""
        gone = self.end(partition)
        led = self._led[partition] = LedPartition()
        return led, gone

    def is_current(self, partition: int, led: LedPartition) -> bool:
        """Whether this election is the partition's last one."""
        return self._led.get(partition) is led

    def end(self, partition: int) -> Collection[Group]:
        """This broker no longer leads the partition. Returns the groups that were dropped."""
        led = self._led.pop(partition, None)
        return led.groups.values() if led is not None else ()
