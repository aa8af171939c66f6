"""Connections that are edited. Event triggers listen for weeks: they go by their connection as it is now, and wait for
one that cannot be read. Moves of replicas take hours: they go on in the cluster that the plan is for, and nowhere else.
"""

import threading
import time
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.reassignment.plan import StalePlan
from logyard.operators.airflow_names import TaskDeferred
from logyard.operators.triggers.base import DONE, WaitEvent
from logyard.operators.triggers.events import ControllerChangedEvent, TopicsChangedEvent
from tests.support.airflow_tasks import context, first_event, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.moves import execute, four_brokers, plan, verify

pytestmark = pytest.mark.airflow


class Edited(MemoryCluster):
    """A cluster whose connection is edited while somebody listens; then the controller changes."""

    edit: Any = None

    def tick(self) -> None:
        super().tick()
        if self.looks == 4 and self.edit is not None:
            self.edit()
        if self.looks > 20:
            self.controller = 2


@pytest.fixture
def edited(monkeypatch: pytest.MonkeyPatch) -> Edited:
    made = Edited({1: None, 2: None, 3: None}, ticks_to_expire=0)
    MemoryClient(made).create_topic(NewTopic("t", 2, 3))
    use(monkeypatch, made)
    return made


def test_an_event_trigger_goes_by_the_connection_as_it_is_now(edited: Edited, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ZooKeeper brokers may name any broker as the controller, so a change of the name is no event."""
    edited.edit = lambda: use(monkeypatch, edited, zookeeper="memory:2")
    monkeypatch.setattr("logyard.operators.triggers.watch.REREAD_S", 0.0)
    assert first_event(ControllerChangedEvent(poll_interval_s=0.01))["controller"] == 2


def test_another_clusters_topics_are_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere(Edited):
        def tick(self) -> None:
            super().tick()
            if self.looks == 10:
                MemoryClient(self).create_topic(NewTopic("new", 1, 1))

    def leads_elsewhere() -> None:
        cluster.cluster_id, cluster.edit = "elsewhere", None
        MemoryClient(cluster).delete_topic("ours")
        MemoryClient(cluster).create_topic(NewTopic("theirs", 1, 1))

    cluster = Elsewhere({1: None, 2: None})
    MemoryClient(cluster).create_topic(NewTopic("ours", 1, 1))
    use(monkeypatch, cluster)
    cluster.edit = leads_elsewhere
    found = first_event(TopicsChangedEvent(poll_interval_s=0.01))
    assert (found["created"], found["deleted"]) == (["new"], [])


def test_a_connection_that_cannot_be_read_at_first_ends_no_event_trigger(
    edited: Edited, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_LOGYARD_DEFAULT")
    later = threading.Timer(0.5, lambda: use(monkeypatch, edited, zookeeper="memory:2"))
    later.start()
    assert first_event(ControllerChangedEvent(poll_interval_s=0.01))["controller"] == 2
    later.join()


def test_moves_go_on_in_no_other_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other cluster has topics of the same names; without them, all would count as moved or gone."""
    cluster = four_brokers(monkeypatch)
    document, ended = plan(drain=[1]), WaitEvent(DONE).as_json()
    assert len(document["partitions"]) > 1
    with pytest.raises(TaskDeferred):
        execute(document, deferrable=True, moves_per_broker=1).execute(context())
    cluster.cluster_id, before = "elsewhere", dict(cluster.assignments)
    for _ in range(20):
        cluster.tick()
    moved = dict(cluster.assignments)
    assert moved != before  # the first wave has ended
    with pytest.raises(StalePlan, match="for cluster memory, the connection leads to elsewhere"):
        execute(document, deferrable=True, moves_per_broker=1).resume(context(), ended, started=time.time())
    assert cluster.assignments == moved
    MemoryClient(cluster).delete_topic("t")
    with pytest.raises(StalePlan, match="for cluster memory, the connection leads to elsewhere"):
        verify(document).finish(context(task_id="v"), ended)
