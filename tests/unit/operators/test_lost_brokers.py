"""BrokerLostEvent: each loss once, and none that one broker alone tells of."""

import pytest

pytest.importorskip("airflow.sdk")

from logyard.operators.triggers.events import BrokerLostEvent
from tests.support.memory_cluster import MemoryCluster
from tests.support.three_brokers import look, with_topic

pytestmark = pytest.mark.airflow


@pytest.fixture
def cluster() -> MemoryCluster:
    return with_topic()


def test_a_lost_broker_is_reported_once_and_again_after_it_was_back(cluster: MemoryCluster) -> None:
    event = BrokerLostEvent(patience=2)
    assert event.changes(look(cluster), None) == []
    for _ in range(2):
        cluster.kill(3)
        cluster.tick()
        assert event.changes(look(cluster, event.wants()), None) == []
        assert [c["broker"] for c in event.changes(look(cluster, event.wants()), None)] == [3]
        assert event.changes(look(cluster, event.wants()), None) == []
        cluster.start(3)
        assert event.changes(look(cluster, event.wants()), None) == []
    assert event.changes(None, OSError()) == []


def test_a_broker_is_not_lost_where_only_one_that_is_behind_does_not_know_it(cluster: MemoryCluster) -> None:
    event = BrokerLostEvent(patience=2)
    assert event.changes(look(cluster), None) == []
    cluster.unmet = {3}
    for _ in range(3):
        assert event.changes(look(cluster, event.wants()), None) == []
    cluster.hung = {cluster.controller or 1}
    for _ in range(3):
        assert event.changes(look(cluster, event.wants()), None) == [], "nobody can tell"
    cluster.hung = set()
    cluster.kill(3)
    cluster.tick()
    lost = [event.changes(look(cluster, event.wants()), None) for _ in range(3)]
    assert [c["broker"] for found in lost for c in found] == [3]
