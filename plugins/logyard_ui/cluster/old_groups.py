"""Groups of the first consumers, which are in ZooKeeper: read for BUDGET_S, with the ends of what they read."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from logyard.admin.cluster.snapshot import ClusterSnapshot
from logyard.admin.groups import old_consumers
from logyard.admin.groups.old_consumers import OldGroup
from logyard.admin.ports import DescribingClient
from logyard.admin.zookeeper.znodes import ZnodeClient
from logyard.broker.model import TopicPartition
from logyard.plugins.logyard_ui.cluster.lag import read_ends

BUDGET_S = 3.0
GROUPS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class OldGroups:
    """`total`: how many there are; `groups`: those that were read; `ends`: the ends of their partitions."""

    total: int = 0
    groups: tuple[OldGroup, ...] = ()
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)

    def lag(self, group: OldGroup) -> int | None:
        """Records that the group has not read yet; None where no end is known."""
        behind = [max(self.ends[tp] - offset, 0) for tp, offset in group.offsets.items() if tp in self.ends]
        return sum(behind) if behind or not group.offsets else None


def read_old_groups(
    znodes: ZnodeClient,
    client: DescribingClient,
    snapshot: ClusterSnapshot,
    clock: Callable[[], float] = time.monotonic,
) -> OldGroups:
    """Read the first groups by name, as many as there is time for. Raises EnsembleUnreachable, ClusterUnreachable."""
    deadline = clock() + BUDGET_S
    names = old_consumers.names(znodes)
    found = []
    for name in names[:GROUPS_MAX]:
        if clock() >= deadline:
            break
        group = old_consumers.read(znodes, name)
        if group is not None:
            found.append(group)
    ends = read_ends(client, {tp for group in found for tp in group.offsets}, snapshot, set())
    return OldGroups(len(names), tuple(found), ends)
