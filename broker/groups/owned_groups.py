"""The groups that this broker coordinates, and whether they may be served now."""

from logyard.broker.errors import ErrorCode
from logyard.broker.groups.members import Group
from logyard.broker.groups.ports import OffsetsLog
from logyard.broker.metadata.coordinators import partition_for


class Roster:
    """The groups of the offsets partitions that this broker leads.

    A group may be dropped and another of its name added: after each await, code checks that its group is still the
    one in here (`has`).
    """

    def __init__(self, offsets_log: OffsetsLog) -> None:
        self._log = offsets_log
        self._groups: dict[str, Group] = {}
        # The same by the partition that has them: names of thousands are not hashed again when one goes.
        self._stored_in: dict[int, dict[str, Group]] = {}
        self._places: dict[str, int] = {}
        # The partitions that this broker leads; a token while a partition's groups are being loaded, else None.
        self._led: dict[int, object | None] = {}

    def partition_for(self, group_id: str) -> int:
        return partition_for(group_id, self._log.partition_count)

    def availability(self, group_id: str) -> ErrorCode:
        """Return NONE if this broker may serve the group now, else NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        partition = self.partition_for(group_id)
        if partition not in self._led:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE if self._led[partition] is None else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    @property
    def is_loading(self) -> bool:
        return any(token is not None for token in self._led.values())

    # Groups

    def all(self) -> list[Group]:
        return list(self._groups.values())

    def by_name(self) -> dict[str, Group]:
        """Return those that are here now."""
        return self._groups.copy()

    def get(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def has(self, group: Group) -> bool:
        """Whether this object is still the group of its name."""
        return self._groups.get(group.group_id) is group

    def add(self, group: Group) -> None:
        if self.has(group):
            return
        name, partition = group.group_id, self.partition_for(group.group_id)
        if name in self._groups:
            self.drop(self._groups[name])
        self._groups[name] = self._stored_in.setdefault(partition, {})[name] = group
        self._places[name] = partition

    def drop(self, group: Group) -> None:
        if self.has(group):
            del self._groups[group.group_id]
            del self._stored_in[self._places.pop(group.group_id)][group.group_id]

    def drop_if_nothing(self, group: Group) -> None:
        """Drop a group that is empty and of which nothing was ever stored (say, all its members were refused)."""
        if group.generation == 0 and group.is_empty:
            self.drop(group)

    # Partitions

    def begin(self, partition: int) -> tuple[object, list[Group]]:
        """Note that this broker leads the partition and has to load it. Returns a token for the load, and the groups
        that were dropped."""
        token = self._led[partition] = object()
        return token, self._let_go(partition)

    def is_current(self, partition: int, token: object) -> bool:
        """Whether the load with that token is the current one."""
        return self._led.get(partition) is token

    def loaded(self, partition: int, groups: dict[str, Group]) -> None:
        """These are the partition's groups, by their names: from now on they are served, all at once."""
        self._led[partition] = None
        for name in groups.keys() & self._groups.keys():
            self.drop(self._groups[name])
        # Whole tables: group by group a hundred thousand took 0.2 s.
        self._groups.update(groups)
        self._stored_in.setdefault(partition, {}).update(groups)
        self._places.update(dict.fromkeys(groups, partition))

    def end(self, partition: int) -> list[Group]:
        """Note that this broker no longer leads the partition. Returns the groups that were dropped."""
        self._led.pop(partition, None)
        return self._let_go(partition)

    def _let_go(self, partition: int) -> list[Group]:
        gone = list(self._stored_in.pop(partition, {}).values())
        for group in gone:
            del self._groups[group.group_id], self._places[group.group_id]
        return gone
