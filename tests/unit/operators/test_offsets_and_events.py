"""Offset sensors, counted seconds, event triggers, the shared watch's offsets, and no event before a heartbeat."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.observation import EVERY_TOPIC, Observation, Wanted
from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.ports import AccessRefused, ClusterUnreachable
from logyard.admin.settings import ClusterSettings
from logyard.broker.model import TopicPartition
from logyard.operators.airflow_names import AirflowFailException
from logyard.operators.sensors.cluster import UnderReplicatedPartitionsSensor
from logyard.operators.sensors.offsets import ConsumerLagBelowSensor, OffsetsReachedSensor
from logyard.operators.topics import DeleteTopicOperator
from logyard.operators.triggers import base
from logyard.operators.triggers.cluster import BrokersUpTrigger, FullyReplicatedTrigger, TopicGoneTrigger
from logyard.operators.triggers.events import (
    BrokerLostEvent,
    ControllerChangedEvent,
    TopicsChangedEvent,
    UnderReplicationEvent,
)
from logyard.operators.triggers.offsets import ConsumerLagBelowTrigger
from logyard.operators.triggers.watch import ClusterWatch
from tests.support.airflow_tasks import context, first_event, run, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.three_brokers import look, with_topic

pytestmark = pytest.mark.airflow

WAITING: dict[str, Any] = {"logyard_conn_id": "logyard_default", "poll_interval_s": 0.01, "deadline_ms": 0}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    made = with_topic()
    made.end_offsets = {TopicPartition("t", 0): 10, TopicPartition("t", 1): 20}
    use(monkeypatch, made)
    return made


# -- offsets -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("deferrable", [True, False])
def test_lag_is_waited_for(cluster: MemoryCluster, deferrable: bool) -> None:
    cluster.group_commits["g"] = {TopicPartition("t", 0): 9, TopicPartition("t", 1): 18}
    sensor = ConsumerLagBelowSensor(task_id="s", group="g", max_lag="3", deferrable=deferrable)
    result, _ = run(sensor, context())
    assert (result["lag"], result["partitions"]) == (3, {"t-0": 1, "t-1": 2})


def test_a_lag_that_is_too_large_defers_and_comes_back(cluster: MemoryCluster) -> None:
    class Consuming(MemoryCluster):
        def tick(self) -> None:
            done = self.group_commits.setdefault("g", {})
            done[TopicPartition("t", 0)] = min(done.get(TopicPartition("t", 0), 0) + 4, 10)
            super().tick()

    cluster.__class__ = Consuming
    sensor = ConsumerLagBelowSensor(task_id="s", group="g", topics=["t"], max_lag=20, deferrable=True)
    sensor.poke_interval = 0.01
    result, deferrals = run(sensor, context())
    assert (deferrals, result["lag"]) == (1, 20)  # partition 1 was never committed: all of it counts


def test_a_group_that_committed_nothing_or_has_leaderless_partitions_is_waited_for(cluster: MemoryCluster) -> None:
    trigger = ConsumerLagBelowTrigger(group="g", topics=None, max_lag=1000, **WAITING)
    seen = look(cluster, trigger.wants())
    assert trigger.look(seen) is None
    assert "to commit" in trigger.missing(seen)
    cluster.group_commits["g"] = {TopicPartition("t", 0): 9}
    for broker in (1, 2, 3):
        cluster.kill(broker)
    cluster.controller = None
    cluster.states = {tp: s for tp, s in cluster.states.items() if tp.partition}
    cluster.running, cluster.sessions, cluster.electing = {9}, {9: -1}, False
    cluster.racks[9] = None
    seen = look(cluster, trigger.wants())
    assert trigger.look(seen) is None
    assert "no leader" in trigger.missing(seen)


@pytest.mark.parametrize(("offsets", "reached"), [("10", True), (11, False), ('{"1": 20}', True), ({"0": 11}, False)])
def test_offsets_are_waited_for(cluster: MemoryCluster, offsets: Any, reached: bool) -> None:
    sensor = OffsetsReachedSensor(task_id="s", topic="t", offsets=offsets)
    found = sensor.poke(context())
    assert bool(found) is reached
    assert found.xcom_value == ({"topic": "t", "offsets": {"0": 10, "1": 20}} if reached else None)


@pytest.mark.parametrize("offsets", ["many", "{}", '{"x": 1}', '{"0": -1}'])
def test_offsets_that_make_no_sense_are_refused(offsets: str) -> None:
    with pytest.raises(AirflowFailException, match="offset"):
        OffsetsReachedSensor(task_id="s", topic="t", offsets=offsets).poke(context())


# -- none for N seconds ------------------------------------------------------------------------------


def test_seconds_of_full_isrs_are_counted_on_end(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    trigger = FullyReplicatedTrigger(topics=None, hold_s=2.0, **WAITING)
    whole = look(cluster, Wanted(ready=frozenset({EVERY_TOPIC})))

    def at(ms: int, seen: Observation = whole) -> dict[str, Any] | None:
        monkeypatch.setattr("logyard.operators.triggers.cluster.monotonic", lambda: ms / 1000)
        return trigger.look(seen)

    cluster.kill(3)
    cluster.tick()
    broken = look(cluster)
    assert at(1000) is None
    assert "to stay full" in trigger.missing(whole)
    assert at(2500) is None
    assert at(2900, broken) is None
    assert at(3000) is None  # it begins anew
    assert at(4999) is None
    found = at(5000)
    assert found is not None
    assert found["held_s"] == 2.0


def test_a_sensor_that_forgets_between_pokes_cannot_count(cluster: MemoryCluster) -> None:
    sensor = UnderReplicatedPartitionsSensor(task_id="s", hold_s="5", mode="reschedule")
    with pytest.raises(AirflowFailException, match="nothing is kept"):
        sensor.poke(context())


# -- events ------------------------------------------------------------------------------------------


def test_a_change_of_the_controller_is_one_event(cluster: MemoryCluster) -> None:
    event = ControllerChangedEvent(patience=2)
    assert event.changes(look(cluster), None) == []
    cluster.controller = 2
    changed = event.changes(look(cluster), None)
    assert [(c["controller"], c["since"]) for c in changed] == [(2, 1)]
    assert event.changes(look(cluster), None) == []
    cluster.controller, cluster.electing = None, False
    assert event.changes(look(cluster), None) == []  # patience
    lost = event.changes(None, OSError("gone"))
    assert [(c["controller"], c["since"], c["problem"]) for c in lost] == [(-1, 2, "gone")]
    assert event.changes(None, OSError("gone")) == []
    cluster.controller = 3
    assert [(c["controller"], c["since"]) for c in event.changes(look(cluster), None)] == [(3, -1)]


def test_without_zookeeper_only_the_loss_of_the_controller_is_an_event(cluster: MemoryCluster) -> None:
    event = ControllerChangedEvent(patience=1)
    event.connection = ClusterSettings(bootstrap=("memory:1",))
    for anybody in (1, 3, 2):
        cluster.controller = anybody
        assert event.changes(look(cluster), None) == []
    cluster.controller, cluster.electing = None, False
    assert [c["controller"] for c in event.changes(look(cluster), None)] == [-1]
    cluster.controller = 1
    assert [c["controller"] for c in event.changes(look(cluster), None)] == [1]


def test_a_controller_that_no_longer_answers_counts_as_none(cluster: MemoryCluster) -> None:
    from dataclasses import replace

    event = ControllerChangedEvent(patience=1)
    answers = look(cluster)
    silent = Observation(replace(answers.snapshot, reassignments=None))
    assert event.changes(silent, None) == []  # perhaps we may not ask: no alarm
    assert event.changes(answers, None) == []
    assert [c["controller"] for c in event.changes(silent, None)] == [-1]


def test_a_cluster_that_is_without_controller_at_the_first_look_is_reported(cluster: MemoryCluster) -> None:
    cluster.controller, cluster.electing = None, False
    event = ControllerChangedEvent(patience=1)
    assert [c["controller"] for c in event.changes(look(cluster), None)] == [-1]


def test_under_replication_is_reported_after_patience(cluster: MemoryCluster) -> None:
    event = UnderReplicationEvent(patience=2)
    cluster.kill(3)
    cluster.tick()
    assert event.changes(look(cluster), None) == []
    found = event.changes(look(cluster), None)
    assert (found[0]["under_replicated"], found[0]["offline"], found[0]["examples"]) == (2, 0, ["t-0", "t-1"])
    assert event.changes(look(cluster), None) == []


def test_under_replication_is_not_reported_for_replicas_that_moves_add(cluster: MemoryCluster) -> None:
    event = UnderReplicationEvent(patience=1)
    cluster.racks[4] = None
    cluster.start(4)
    cluster.ticks_to_move = 99
    for p in (0, 1):
        cluster.assignments[TopicPartition("t", p)] = cluster.assignments[TopicPartition("t", p)].reassign_to((1, 2, 4))
    assert event.changes(look(cluster), None) == []
    cluster.kill(3)
    cluster.tick()
    assert [found["under_replicated"] for found in event.changes(look(cluster), None)] == [2]


def test_topics_that_come_and_go_are_reported(cluster: MemoryCluster) -> None:
    event = TopicsChangedEvent()
    client = MemoryClient(cluster)
    assert event.changes(look(cluster), None) == []
    client.create_topic(NewTopic("u", 1, 1))
    client.delete_topic("t")
    assert event.changes(look(cluster, event.wants()), None) == [{"created": ["u"], "deleted": ["t"]}]
    assert event.changes(look(cluster, event.wants()), None) == []


def test_a_broker_that_is_behind_deletes_and_creates_no_topic(cluster: MemoryCluster) -> None:
    event, client = TopicsChangedEvent(), MemoryClient(cluster)
    assert event.changes(look(cluster, event.wants()), None) == []
    cluster.unheard = {"t"}
    assert event.changes(look(cluster, event.wants()), None) == []
    assert cluster.controller is not None
    cluster.hung.add(cluster.controller)  # nobody can tell
    assert event.changes(look(cluster, event.wants()), None) == []
    cluster.hung.clear()
    cluster.unheard = set()
    before = look(cluster)
    client.delete_topic("t")
    assert event.changes(look(cluster, event.wants()), None) == [{"created": [], "deleted": ["t"]}]
    assert event.changes(before, None) == []  # of a broker that still shows it
    client.create_topic(NewTopic("t", 1, 1))
    assert event.changes(look(cluster, event.wants()), None) == [{"created": ["t"], "deleted": []}]
    assert event.changes(before, None) == []
    assert event.changes(look(cluster, event.wants()), None) == []


@pytest.mark.parametrize("made", [ControllerChangedEvent, BrokerLostEvent, UnderReplicationEvent, TopicsChangedEvent])
def test_event_triggers_serialize_and_go_with_asset_watchers(made: Any) -> None:
    from airflow.sdk import Asset, AssetWatcher
    from airflow.triggers.base import BaseEventTrigger

    event = made(logyard_conn_id="other", poll_interval_s=2.0)
    path, fields = event.serialize()
    assert path.endswith(made.__name__)
    assert (fields["logyard_conn_id"], fields["poll_interval_s"]) == ("other", 2.0)
    assert made(**fields).serialize() == (path, fields)
    assert BaseEventTrigger.hash(path, fields) == BaseEventTrigger.hash(*made(**fields).serialize())
    Asset("a", watchers=[AssetWatcher(name="w", trigger=event)])


def test_an_event_comes_through_the_shared_poll(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    class Changing(MemoryCluster):
        def tick(self) -> None:
            super().tick()
            if self.looks > 4:
                self.controller = 2

    cluster.__class__ = Changing
    use(monkeypatch, cluster, zookeeper="memory:2")
    event = first_event(ControllerChangedEvent(poll_interval_s=0.01))
    assert (event["event"], event["controller"], event["since"]) == ("ControllerChangedEvent", 2, 1)
    assert event["logyard_conn_id"] == "logyard_default"


def test_one_look_that_is_not_understood_does_not_end_an_event_trigger(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Changing(MemoryCluster):
        def tick(self) -> None:
            super().tick()
            if self.looks > 4:
                self.controller = 2

    looked = 0
    changes = ControllerChangedEvent.changes

    def fails_once(self: Any, seen: Any, problem: Any) -> Any:
        nonlocal looked
        looked += 1
        if looked == 2:
            raise KeyError("what nobody thought of")
        return changes(self, seen, problem)

    cluster.__class__ = Changing
    use(monkeypatch, cluster, zookeeper="memory:2")
    monkeypatch.setattr(ControllerChangedEvent, "changes", fails_once)
    assert first_event(ControllerChangedEvent(poll_interval_s=0.01))["controller"] == 2
    assert looked > 2


# -- the watch and the heartbeat ---------------------------------------------------------------------


async def test_one_look_holds_what_all_want(cluster: MemoryCluster) -> None:
    cluster.group_commits = {"g": {TopicPartition("t", 0): 1}, "h": {TopicPartition("t", 1): 2}}
    watch = ClusterWatch.of("logyard_default")
    before = cluster.looks
    every = frozenset({EVERY_TOPIC})
    wants = [Wanted(frozenset({"g"}), starts=every), Wanted(frozenset({"h"})), Wanted(topics=frozenset({"t"}))]
    looks = await asyncio.gather(*(watch.next_look(0.01, want) for want in wants))
    assert cluster.looks - before == 1
    seen = looks[0]
    assert isinstance(seen, Observation)
    assert all(other is seen for other in looks)
    assert (seen.lag("g"), seen.lag("h")) == ({TopicPartition("t", 0): 9}, {TopicPartition("t", 1): 18})


async def test_who_is_in_a_hurry_need_not_wait_for_who_is_not(cluster: MemoryCluster) -> None:
    watch = ClusterWatch.of("logyard_default")
    patient = asyncio.ensure_future(watch.next_look(30.0))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        assert await watch.next_look(0.01) is await patient


def test_no_event_leaves_before_the_workers_heartbeat(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL", "5")
    assert base.settle_s() == 10.0
    monkeypatch.setenv("AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL", "0.5")
    assert base.settle_s() == 1.5
    monkeypatch.setattr(base, "settle_s", lambda: 0.2)
    started = time.monotonic()
    first_event(BrokersUpTrigger(brokers=[1], **WAITING))
    assert time.monotonic() - started >= 0.2


# -- what is known by its name is not the same for ever ------------------------------------------------


def named(look: Observation, topic: str, topic_id: str | None) -> Observation:
    """The same look, but the topic has that id."""
    topics = {**look.snapshot.topics, topic: replace(look.snapshot.topics[topic], topic_id=topic_id)}
    return replace(look, snapshot=replace(look.snapshot, topics=topics))


def test_a_topic_that_was_made_again_between_two_looks_is_reported(cluster: MemoryCluster) -> None:
    event, seen = TopicsChangedEvent(), look(cluster)
    assert event.changes(named(seen, "t", "one"), None) == []
    assert event.changes(named(seen, "t", "one"), None) == []
    assert event.changes(named(seen, "t", "two"), None) == [{"created": ["t"], "deleted": ["t"]}]
    assert event.changes(named(seen, "t", None), None) == []  # a broker that tells no ids


def test_a_topic_is_gone_when_another_has_its_name(cluster: MemoryCluster) -> None:
    trigger, seen = TopicGoneTrigger(topic="t", topic_id="one", **WAITING), look(cluster)
    assert trigger.look(named(seen, "t", "one")) is None
    assert trigger.look(named(seen, "t", None)) is None
    assert trigger.look(named(seen, "t", "two")) == {"topic": "t"}
    unknown = TopicGoneTrigger(topic="t", **WAITING)
    assert unknown.look(named(seen, "t", "two")) is None


def test_topics_that_are_not_there_are_not_well(cluster: MemoryCluster) -> None:
    whole = FullyReplicatedTrigger(topics=["t", "typo"], **WAITING)
    assert whole.look(look(cluster)) is None
    assert whole.missing(look(cluster)) == "topics typo to appear"
    cluster.group_commits["g"] = {TopicPartition("t", 0): 10}
    lag = ConsumerLagBelowTrigger(group="g", topics=["t", "typo"], max_lag=0, **WAITING)
    assert lag.look(look(cluster, lag.wants())) is None
    assert "typo" in lag.missing(look(cluster, lag.wants()))


def test_a_topic_that_cannot_be_described_is_not_deleted_already(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = MemoryClient.witnessed

    def forbidden(self: MemoryClient, *asked: Any, **how: Any) -> Any:
        """As Metadata answers who may not see the topic: with an error, which is not that it does not exist."""
        return replace(real(self, *asked, **how), topics={}, missing=())

    monkeypatch.setattr(MemoryClient, "witnessed", forbidden)
    with pytest.raises(AirflowFailException, match="cannot be described"):
        run(DeleteTopicOperator(task_id="d", topic="t"), context())


def test_a_refused_login_is_no_lost_controller(cluster: MemoryCluster) -> None:
    event = ControllerChangedEvent(patience=1)
    event.changes(look(cluster), None)
    assert event.changes(None, AccessRefused("the login is refused")) == []
    assert event.changes(None, ClusterUnreachable("nobody"))[0]["controller"] == -1
