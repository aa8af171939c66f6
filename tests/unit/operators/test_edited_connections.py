"""Connections that are edited. Event triggers listen for weeks: they go by their connection as it is now, and wait for
one that cannot be read. Moves of replicas take hours: they go on in the cluster that the plan is for, and nowhere else.
"""

import asyncio
import json
import threading
import time
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.reassignment.plan import StalePlan
from logyard.admin.recovery.recovery import NotRecovered
from logyard.operators.airflow_names import AirflowFailException, TaskDeferred
from logyard.operators.controller import RecoverControllerOperator
from logyard.operators.sensors.cluster import ReassignmentDoneSensor
from logyard.operators.topics import DeleteTopicOperator
from logyard.operators.triggers.base import DONE, WaitEvent, WaitFailed
from logyard.operators.triggers.events import ControllerChangedEvent, TopicsChangedEvent
from tests.support.airflow_tasks import context, first_event, remade, run, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.moves import decommission, execute, four_brokers, plan, verify

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


@pytest.mark.parametrize("is_named", [True, False])
def test_killing_a_task_cancels_nothing_in_another_cluster(monkeypatch: pytest.MonkeyPatch, is_named: bool) -> None:
    """Somebody's moves there are to the same replicas of a topic of the same name. A plan of Kafka's tool names no
    cluster: the task knows where it began."""
    cluster = four_brokers(monkeypatch)
    document, cluster.ticks_to_move = plan(drain=[1]), 500
    task = execute(document if is_named else {"partitions": document["partitions"]}, deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context())
    moving = {tp for tp, placed in cluster.assignments.items() if placed.is_reassigning}
    cluster.cluster_id = "elsewhere"
    asyncio.run(remade(deferred.value.trigger).on_kill())
    task.on_kill()
    assert {tp for tp, placed in cluster.assignments.items() if placed.is_reassigning} == moving
    cluster.cluster_id = "memory"
    task.on_kill()
    assert not any(placed.is_reassigning for placed in cluster.assignments.values())


def test_a_task_killed_before_it_has_a_plan_cancels_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    four_brokers(monkeypatch)
    decommission().on_kill()


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_topic_is_not_gone_because_another_cluster_has_none(
    monkeypatch: pytest.MonkeyPatch, deferrable: bool
) -> None:
    class Slow(MemoryCluster):
        """The controller does not come to the deletion; then the connection is edited."""

        def tick(self) -> None:
            super().tick()
            if self.looks == 6:
                self.cluster_id = "elsewhere"
                self.configs.clear()

    cluster = Slow({1: None})
    MemoryClient(cluster).create_topic(NewTopic("t", 1, 1))
    use(monkeypatch, cluster)
    monkeypatch.setattr(MemoryClient, "delete_topic", lambda *_: None)
    monkeypatch.setenv("AIRFLOW__LOGYARD__DEFER_AFTER_S", "0")
    task = DeleteTopicOperator(task_id="d", topic="t", deferrable=deferrable, poll_interval_s=0.01)
    with pytest.raises(WaitFailed, match="led to cluster memory when this was begun, and leads to elsewhere now"):
        run(task, context())


def test_moves_are_not_said_to_have_ended_by_another_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = four_brokers(monkeypatch)
    document, cluster.cluster_id = plan(drain=[1]), "elsewhere"
    cluster.configs.clear()
    with pytest.raises(AirflowFailException, match="led to cluster memory"):
        ReassignmentDoneSensor(task_id="s", plan=document, timeout=1, poke_interval=0.01).execute(context())


def test_a_broker_of_that_number_in_another_cluster_is_not_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is empty there, and so counted as emptied."""
    cluster = four_brokers(monkeypatch)
    for name in ("START", "STOP"):
        monkeypatch.setenv(f"AIRFLOW__LOGYARD__BROKER_{name}_COMMAND", '["it", "{broker_id}"]')
    task, whole = decommission(stop_brokers=True), MemoryClient.witnessed

    def edited(client: MemoryClient, topics: Any = None) -> Any:
        if topics is None and not any(1 in placed.replicas for placed in cluster.assignments.values()):
            cluster.cluster_id = "elsewhere"
        return whole(client, topics)

    monkeypatch.setattr(MemoryClient, "witnessed", edited)
    with pytest.raises(StalePlan, match="for cluster memory, the connection leads to elsewhere"):
        run(task, context())
    assert cluster.stopped == []


def test_a_recovery_goes_on_in_no_other_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was seen of broker 1 there, and for how long, would have the controller of this one fenced at once."""
    cluster = MemoryCluster({1: None, 2: None, 3: None})
    MemoryClient(cluster).create_topic(NewTopic("t", 1, 3))
    use(monkeypatch, cluster, zookeeper="memory:2")
    assert cluster.controller is not None
    cluster.hung.add(cluster.controller)
    task = RecoverControllerOperator(task_id="r", deferrable=True, poll_interval_s=0.01)
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context())
    cluster.cluster_id, case = "elsewhere", json.loads(json.dumps(deferred.value.kwargs))["case"]
    with pytest.raises(NotRecovered, match="led to cluster memory when the recovery began, and leads to elsewhere"):
        task.resume(context(), {"waited_s": 3600.0}, case)
    assert (cluster.stopped, cluster.started, cluster.steps) == ([], [], [])
