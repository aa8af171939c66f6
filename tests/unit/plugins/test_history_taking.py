"""A sample of a cluster of which a part cannot be reached."""

from typing import ClassVar

from logyard.admin.ports import ClusterUnreachable
from logyard.broker.model import TopicPartition
from logyard.plugins.logyard_ui.history.taking import UNANSWERED_MAX, take
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster


def test_groups_whose_coordinator_does_not_answer_are_left_out(cluster: MemoryCluster) -> None:
    """One that this machine does not reach ended each sample; each of its groups takes as long as a request may."""

    class Parted(MemoryClient):
        asked: ClassVar[list[str]] = []

        def group_offsets(self, group_id: str) -> dict[TopicPartition, int]:
            if group_id.startswith("away"):
                self.asked.append(group_id)
                raise ClusterUnreachable("no connection to broker 2")
            return super().group_offsets(group_id)

    cluster.tick()
    cluster.group_commits["away-0"] = {TopicPartition("t", 0): 1}
    found = take(Parted(cluster))
    assert set(found.groups) == {"readers"}
    assert set(found.topics) == {"t", "u"}
    cluster.group_commits |= {f"away-{number}": {TopicPartition("t", 0): 1} for number in range(1, 9)}
    Parted.asked.clear()
    take(Parted(cluster))
    assert len(Parted.asked) == UNANSWERED_MAX
