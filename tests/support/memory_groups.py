"""Consumer groups of a `MemoryCluster`, for the client onto it (`memory_clients.py`)."""

from collections.abc import Mapping

from logyard.admin.cluster.snapshot import GroupView
from logyard.admin.groups.groups import DEAD, EMPTY, STABLE, Group, Member
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import TopicPartition
from tests.support.memory_cluster import MemoryCluster


class MemoryGroups:
    """The part of `ports.DescribingClient` that is about groups."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster

    def groups(self) -> list[GroupView]:
        c = self._cluster
        members = {group: c.group_members.get(group, 0) for group in sorted({*c.group_commits, *c.group_members})}
        return [
            GroupView(group, "Stable" if count else "Empty", count, "", tuple(c.group_topics.get(group, ())))
            for group, count in members.items()
        ]

    def describe_group(self, group_id: str) -> Group:
        """Members share the partitions that the group has committed for, in turn."""
        c = self._cluster
        if group_id not in c.group_commits and group_id not in c.group_members:
            return Group(group_id, DEAD)
        count = c.group_members.get(group_id, 0)
        mine = sorted(c.group_commits.get(group_id, {}))
        members = [
            Member(f"{group_id}-{n}", group_id, f"/10.0.0.{n}", partitions=tuple(mine[n::count])) for n in range(count)
        ]
        return Group(group_id, STABLE if count else EMPTY, tuple(members), "range", "host1:9092", 1)

    def group_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        return dict(self._cluster.group_commits.get(group_id, {}))

    def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._cluster.group_commits.setdefault(group_id, {}).update(offsets)

    def delete_group(self, group_id: str) -> None:
        c = self._cluster
        if group_id not in c.group_commits and group_id not in c.group_members:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id}: GROUP_ID_NOT_FOUND")
        if c.group_members.get(group_id, 0):
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id}: NON_EMPTY_GROUP")
        c.group_commits.pop(group_id, None)
        c.group_members.pop(group_id, None)
