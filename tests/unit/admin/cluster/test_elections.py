"""Kafka's file of partitions, and its words for what an election came to."""

import pytest

from logyard.admin.cluster import elections
from logyard.admin.cluster.snapshot import NewTopic
from logyard.broker.model import TopicPartition
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster

T0, T1, T2 = (TopicPartition("t", p) for p in range(3))


def test_done_not_needed_refused() -> None:
    cluster = MemoryCluster({0: None, 1: None})
    client = MemoryClient(cluster)
    client.create_topic(NewTopic("t", assignment={0: (0, 1), 1: (1, 0), 2: (0, 1)}))
    client.snapshot()
    for tp in (T0, T2):
        cluster.states[tp] = cluster.states[tp].__class__(1, 1, (0, 1) if tp == T0 else (1,), 1)
    outcome = elections.elect(client, None, elections.PREFERRED)
    assert outcome.lines == (
        "Successfully completed leader election (PREFERRED) for partitions t-0",
        "Valid replica already elected for partitions t-1",
        "Error completing leader election (PREFERRED) for partition: t-2: "
        "org.apache.kafka.common.errors.PreferredLeaderNotAvailableException: PREFERRED_LEADER_NOT_AVAILABLE",
    )
    assert list(outcome.refused) == [T2]


def test_files() -> None:
    text = '{"partitions":[{"topic":"t","partition":1},{"topic":"t","partition":0}]}'
    assert elections.parse_partitions(text) == [T1, T0]
    for wrong in ("{", "{}", "[]", '{"partitions":[{"topic":"t"}]}', '{"partitions":[{"topic":1,"partition":0}]}'):
        with pytest.raises(elections.BadElection, match="is expected in the file"):
            elections.parse_partitions(wrong)
    with pytest.raises(elections.BadElection, match="duplicate partitions: t-0"):
        elections.parse_partitions('{"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":0}]}')
