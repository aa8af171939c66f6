"""Airflow's home for these tests (set before anything imports Airflow), and a cluster in memory."""

from collections.abc import Iterator

import pytest

from logyard.admin.cluster.snapshot import NewTopic
from logyard.broker.model import TopicPartition
from tests.support import airflow_home
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_app import Connections, PageClient, connections, make_app

airflow_home.prepare()

T0 = TopicPartition("t", 0)


@pytest.fixture
def known() -> Iterator[Connections]:
    with connections() as made:
        yield made


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster({1: "a", 2: "b", 3: "c"})
    client = MemoryClient(made)
    client.create_topic(NewTopic("t", 6, 3))
    client.create_topic(NewTopic("u", 3, 2))
    made.tick()
    made.group_commits["readers"] = {T0: 3}
    made.group_members["readers"] = 2
    made.start_offsets[T0], made.end_offsets[T0] = 1, 9
    made.sizes = dict.fromkeys(made.assignments, 100)
    return made


@pytest.fixture
def viewer(cluster: MemoryCluster, known: Connections) -> PageClient:
    return PageClient(make_app(cluster))
