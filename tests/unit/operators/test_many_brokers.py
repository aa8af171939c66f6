"""Waits that go by many brokers: one that lags, or does not answer, neither ends a wait nor hides what others tell."""

from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.told_offsets import ToldOffsets
from logyard.admin.ports import ClusterUnreachable
from logyard.admin.topics import retention
from logyard.broker.model import Assignment, TopicPartition
from logyard.operators.sensors.cluster import ReassignmentDoneSensor
from logyard.operators.triggers.cluster import (
    ControllerElectedTrigger,
    FullyReplicatedTrigger,
    ReassignmentDoneTrigger,
)
from logyard.operators.triggers.offsets import ConsumerLagBelowTrigger, OffsetsReachedTrigger
from tests.support.airflow_tasks import context, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.three_brokers import look, with_topic

pytestmark = pytest.mark.airflow

WAITING: dict[str, Any] = {"logyard_conn_id": "logyard_default", "poll_interval_s": 0.01, "deadline_ms": 0}


@pytest.fixture
def cluster() -> MemoryCluster:
    made = with_topic()
    made.end_offsets = {TopicPartition("t", 0): 10, TopicPartition("t", 1): 20}
    return made


def test_a_leader_that_does_not_answer_spoils_no_other_offsets(cluster: MemoryCluster) -> None:
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    leaders = {tp: state.leader for tp, state in cluster.states.items()}
    assert leaders[t0] != leaders[t1]
    cluster.hung = {leaders[t1]}
    cluster.group_commits["g"] = {t0: 9, t1: 18}
    trigger = ConsumerLagBelowTrigger(group="g", topics=None, max_lag=1000, **WAITING)
    seen = look(cluster, trigger.wants())
    assert seen.ends == {t0: 10}
    assert trigger.look(seen) is None
    assert f"(broker {leaders[t1]}: no answer in time)" in trigger.missing(seen)


@pytest.mark.parametrize("topics", [None, ["t"]])
def test_full_isrs_are_not_said_by_a_broker_that_lags(cluster: MemoryCluster, topics: list[str] | None) -> None:
    """It shows the ISRs of before, or has not heard of the topic that lacks a replica."""
    before = MemoryClient(cluster).snapshot().topics["t"]
    cluster.kill(3)
    cluster.tick()
    trigger = FullyReplicatedTrigger(topics=topics, **WAITING)
    for unheard, outdated in ((set(), {"t": before}), ({"t"}, {})):
        cluster.unheard, cluster.outdated = unheard, outdated
        assert trigger.look(look(cluster, trigger.wants())) is None
    cluster.unheard, cluster.outdated = set(), {}
    cluster.start(3)
    for _ in range(3):
        cluster.tick()
    found = trigger.look(look(cluster, trigger.wants()))
    assert found is not None
    assert found["partitions"] == 2


def test_a_partition_that_one_broker_does_not_know_yet_is_waited_for(cluster: MemoryCluster) -> None:
    t1, t2 = TopicPartition("t", 1), TopicPartition("t", 2)
    before = MemoryClient(cluster).snapshot().topics["t"]
    MemoryClient(cluster).add_partitions("t", 3)
    cluster.tick()
    cluster.outdated = {"t": before}
    cluster.end_offsets[t2] = 5
    cluster.group_commits["g"] = {TopicPartition("t", 0): 10, t1: 20}
    reached = OffsetsReachedTrigger(topic="t", offsets={"*": 6}, **WAITING)
    seen = look(cluster, reached.wants())
    assert reached.look(seen) is None
    assert reached.missing(seen) == "offsets: t-2 at 5 of 6"
    caught_up = ConsumerLagBelowTrigger(group="g", topics=["t"], max_lag=0, **WAITING)
    seen = look(cluster, caught_up.wants())
    assert caught_up.look(seen) is None
    assert "5 records behind" in caught_up.missing(seen)
    cluster.end_offsets[t2] = 6
    found = reached.look(look(cluster, reached.wants()))
    assert found == {"topic": "t", "offsets": {"0": 10, "1": 20, "2": 6}}


def test_partitions_of_which_no_controller_tells_are_waited_for(cluster: MemoryCluster) -> None:
    cluster.electing, cluster.controller = False, None
    cluster.group_commits["g"] = {TopicPartition("t", 0): 10, TopicPartition("t", 1): 20}
    waits = (
        OffsetsReachedTrigger(topic="t", offsets={"*": 0}, **WAITING),
        ConsumerLagBelowTrigger(group="g", topics=["t"], max_lag=1000, **WAITING),
    )
    for trigger in waits:
        seen = look(cluster, trigger.wants())
        assert trigger.look(seen) is None
        assert "controller" in trigger.missing(seen)
    named = OffsetsReachedTrigger(topic="t", offsets={"0": 10}, **WAITING)  # needs no list
    assert named.look(look(cluster, named.wants())) is not None


@pytest.mark.parametrize("end", ["kill", "hang"])
def test_a_controller_that_only_others_name_is_none(end: str) -> None:
    """Its session has not expired yet, or its process hangs: the brokers that live still name it."""
    cluster = MemoryCluster({1: None, 2: None, 3: None}, ticks_to_expire=1000)
    first = cluster.controller
    assert first is not None
    trigger = ControllerElectedTrigger(other_than=None, **WAITING)
    assert trigger.look(look(cluster, trigger.wants())) == {"controller": first}
    if end == "kill":
        cluster.kill(first)
    else:
        cluster.hung = {first}
    seen = look(cluster, trigger.wants())
    assert seen.snapshot.controller == first
    assert trigger.look(seen) is None
    assert trigger.missing(seen) == f"broker {first}, which another names as the controller, to say that it is"
    cluster.controller, cluster.epoch = first % 3 + 1, cluster.epoch + 1
    assert trigger.look(look(cluster, trigger.wants())) == {"controller": first % 3 + 1}


def test_a_report_of_retention_has_all_that_brokers_tell(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that does not answer is asked once, and keeps nobody's records out."""
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    silent = cluster.states[t1].leader
    cluster.hung, cluster.sizes = {silent}, {t0: 100, t1: 50}
    cluster.configs["t"]["retention.ms"] = "1000"
    asked: list[int] = []
    told = MemoryClient.told_offsets

    def noted(self: MemoryClient, leaders: Mapping[TopicPartition, int], timestamp: int) -> ToldOffsets:
        asked.extend(leaders.values())
        return told(self, leaders, timestamp)

    monkeypatch.setattr(MemoryClient, "told_offsets", noted)
    (entry,) = retention.read(MemoryClient(cluster), None, 10_000)
    assert (entry.records, entry.overdue, entry.bytes_all) == (10, 10, 300)
    assert entry.findings == (
        "10 of 10 records are older than retention.ms: are its segments too large?",
        f"the records of 1 partition are not known (broker {silent}: no answer in time)",
        f"its bytes on broker {silent} are not known (broker {silent}: no answer in time)",
    )
    assert asked.count(silent) == 1
    cluster.hung = {1, 2, 3}
    with pytest.raises(ClusterUnreachable, match="no answer in time"):
        retention.read(MemoryClient(cluster), None, 10_000)


def test_a_report_of_retention_says_what_is_unled_and_away(cluster: MemoryCluster) -> None:
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    gone = cluster.states[t1].leader
    cluster.assignments = {t0: cluster.assignments[t0], t1: Assignment((gone,))}
    cluster.states[t1] = cluster.states[t1]._replace(isr=(gone,))
    cluster.kill(gone)
    cluster.tick()
    (entry,) = retention.read(MemoryClient(cluster), ["t"], 10_000)
    assert entry.records == 10
    assert "the records of 1 partition are not known (no leader)" in entry.findings
    assert f"its bytes on broker {gone} are not known (it is away)" in entry.findings


def test_time_in_which_nothing_is_seen_does_not_count_as_a_brokers_absence(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody answered for an hour: the target broker may have been back, and caught up, in between."""
    now = 1000.0
    monkeypatch.setattr("logyard.operators.triggers.cluster.monotonic", lambda: now)
    cluster.ticks_to_move = 1000
    MemoryClient(cluster).alter_reassignments({TopicPartition("t", 0): [3, 2, 1]})
    move = {"topic": "t", "partition": 0, "replicas": [3, 2, 1]}
    trigger = ReassignmentDoneTrigger(moves=[move], broker_patience_s=900, **WAITING)
    cluster.kill(3)
    assert trigger.look(look(cluster, trigger.wants())) is None
    trigger.unseen()
    now += 3600
    assert trigger.look(look(cluster, trigger.wants())) is None
    now += 900
    found = trigger.look(look(cluster, trigger.wants()))
    assert found is not None
    assert found["given_up"]


def test_moves_that_a_lost_broker_holds_up_are_not_done(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after a quarter of an hour either, when an operator gives up: who waits for them goes on to the next task."""
    now = 1000.0
    monkeypatch.setattr("logyard.operators.triggers.cluster.monotonic", lambda: now)
    use(monkeypatch, cluster)
    cluster.ticks_to_move = 1000
    MemoryClient(cluster).alter_reassignments({TopicPartition("t", 0): [3, 2, 1]})
    cluster.kill(3)
    plan = {"partitions": [{"topic": "t", "partition": 0, "replicas": [3, 2, 1]}]}
    sensor = ReassignmentDoneSensor(task_id="s", plan=plan, timeout=7200)
    for _ in range(3):
        assert not sensor.poke(context()).is_done
        now += 1800
