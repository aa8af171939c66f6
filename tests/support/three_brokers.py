"""A cluster in memory of three brokers with a topic on all of them, and what is observed of it."""

from logyard.admin.cluster.observation import Observation, Wanted, observe
from logyard.admin.cluster.snapshot import NewTopic
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster


def with_topic() -> MemoryCluster:
    """Topic `t` has two partitions; sessions of killed brokers expire at once."""
    made = MemoryCluster({1: None, 2: None, 3: None}, ticks_to_expire=0)
    client = MemoryClient(made)
    client.create_topic(NewTopic("t", 2, 3))
    client.snapshot()
    return made


def look(cluster: MemoryCluster, wants: Wanted | None = None) -> Observation:
    """Look at it once."""
    return observe(MemoryClient(cluster), wants)
