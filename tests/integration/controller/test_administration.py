"""The administration on three real brokers: every request answered, replicas moved, controllers brought back."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from logyard.admin.cluster.client import KafkaClusterClient
from logyard.admin.cluster.snapshot import ClusterSnapshot, NewTopic
from logyard.admin.connector import RealConnector
from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.ports import EARLIEST
from logyard.admin.reassignment.plan import make_plan
from logyard.admin.reassignment.planner import Goals, PlanInput, plan_moves
from logyard.admin.reassignment.progress import plan_progress
from logyard.admin.reassignment.throttles import settings
from logyard.admin.reassignment.throttles.book import ThrottleBook
from logyard.admin.recovery.case import Expectation
from logyard.admin.recovery.diagnosis import Finding
from logyard.admin.topics.changes import IfExists, ensure_topic
from logyard.admin.zookeeper.ensemble import KazooEnsemble
from logyard.broker.model import TopicPartition
from tests.support.memory_records import MemoryRecords
from tests.support.real_cluster import RealCluster, eventually
from tests.support.recovering import recover, settings_of


@pytest.fixture
def client(cluster: RealCluster) -> Iterator[KafkaClusterClient]:
    made = KafkaClusterClient(settings_of(cluster))
    yield made
    made.close()


def test_a_topics_life(client: KafkaClusterClient) -> None:
    wanted = NewTopic("admin-life", 3, 2, {"cleanup.policy": "compact"})
    assert ensure_topic(client, wanted, IfExists.FAIL).create == wanted
    eventually(lambda: client.snapshot(["admin-life"]).ready("admin-life"), "every partition led")
    # Any broker may be asked, and one of them may hear of the topic after the others.
    eventually(lambda: ensure_topic(client, wanted, IfExists.RECONCILE).is_empty, "nothing to do")
    grown = NewTopic("admin-life", 5, 2, {"cleanup.policy": "compact", "retention.ms": "60000"})
    changes = ensure_topic(client, grown, IfExists.RECONCILE)
    assert (changes.add_partitions_to, dict(changes.set_configs)) == (5, {"retention.ms": "60000"})
    eventually(lambda: client.snapshot(["admin-life"]).ready("admin-life", 5), "the new partitions led")
    eventually(lambda: ensure_topic(client, grown, IfExists.RECONCILE).is_empty, "nothing left to do")
    assert client.snapshot(["admin-life"]).topics["admin-life"].topic_id
    client.delete_topic("admin-life")
    eventually(lambda: client.snapshot(["admin-life"]).missing == ("admin-life",), "the topic gone")


def ready_snapshot(client: KafkaClusterClient, topic: str) -> ClusterSnapshot | None:
    """What one broker knows, once it knows a leader of every partition."""
    snapshot = client.snapshot([topic])
    return snapshot if snapshot.ready(topic) else None


def is_created(client: KafkaClusterClient, topic: NewTopic) -> bool:
    """Whether the controller takes the topic: it has the one before until every replica's files are gone."""
    try:
        client.create_topic(topic)
    except ApiError as error:
        if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        raise
    return True


def test_a_topic_is_deleted_by_its_id(client: KafkaClusterClient) -> None:
    topic = NewTopic("admin-by-id", 1, 2)
    client.create_topic(topic)
    snapshot = eventually(lambda: ready_snapshot(client, topic.name), "every partition led")
    first = snapshot.topics[topic.name].topic_id
    client.delete_topic(topic.name, first)
    eventually(lambda: client.snapshot([topic.name]).missing == (topic.name,), "the topic gone")
    eventually(lambda: is_created(client, topic), "the name free again")
    eventually(lambda: client.snapshot([topic.name]).ready(topic.name), "another one of the name")
    with pytest.raises(ApiError) as refusal:
        client.delete_topic(topic.name, first)
    assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_ID
    eventually(lambda: client.snapshot([topic.name]).ready(topic.name), "the second is there still")
    client.delete_topic(topic.name)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("..", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("admin-wide", 1, 9), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("admin-odd", 1, 1, {"nonsense": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("admin-uneven", assignment={0: (0,), 1: (0, 1)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_refusals_carry_the_brokers_code(client: KafkaClusterClient, topic: NewTopic, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refusal:
        client.create_topic(topic)
    assert refusal.value.code is code


def test_what_does_not_exist_is_said_soon(client: KafkaClusterClient) -> None:
    started = time.monotonic()
    with pytest.raises(ApiError) as refusal:
        client.offsets([TopicPartition("admin-nowhere", 0)])
    assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert time.monotonic() - started < 15


def test_offsets_groups_records_and_sizes(cluster: RealCluster, client: KafkaClusterClient) -> None:
    cluster.create("admin-offsets", partitions=2)
    cluster.produce("admin-offsets", [(str(n).encode(), b"x" * 100) for n in range(200)])
    partitions = [TopicPartition("admin-offsets", p) for p in (0, 1)]
    ends = client.offsets(partitions)
    assert sum(ends.values()) == 200
    eventually(
        lambda: {s.broker for s in client.replica_sizes() if s.tp == partitions[0] and s.size > 0} == {0, 1, 2},
        "the partition's size on every broker",
    )
    client.alter_group_offsets("admin-group", {partitions[0]: 7})
    assert client.group_offsets("admin-group") == {partitions[0]: 7}
    assert "admin-group" in {group.group_id for group in client.groups()}
    client.delete_records({partitions[0]: 5})
    assert client.offsets(partitions, EARLIEST) == {partitions[0]: 5, partitions[1]: 0}


def test_replicas_move_by_a_plan_under_a_throttle(client: KafkaClusterClient) -> None:
    client.create_topic(NewTopic("admin-move", assignment={p: (0, 1) for p in range(4)}))  # noqa: C420

    def led() -> ClusterSnapshot | None:
        # One and the same: another broker, which is asked next, may not have heard of the topic yet.
        seen = client.snapshot(["admin-move"], reassignments=True)
        return seen if seen.ready("admin-move") else None

    snapshot = eventually(led, "every partition led")
    moves = plan_moves(PlanInput.of(snapshot, ["admin-move"], client.replica_sizes()), Goals(drain=frozenset({0})))
    assert len(make_plan(snapshot, moves).moves) == 4
    book = ThrottleBook(client, MemoryRecords(), RealConnector().pause())
    assert book.hold("test", moves, 10_000_000) == []
    assert all(client.broker_configs(b)[settings.FOLLOWER_RATE].value == "10000000" for b in (0, 1, 2))
    assert client.alter_reassignments({m.tp: m.target for m in moves}) == {m.tp: None for m in moves}
    eventually(lambda: len(plan_progress(moves, client.snapshot(reassignments=True)).done) == 4, "every move done", 60)
    assert book.release("test") == []
    eventually(lambda: not _throttled(client), "no throttle left")
    elected = client.elect_leaders([m.tp for m in moves])
    assert all(r is None or r.code is ErrorCode.ELECTION_NOT_NEEDED for r in elected.values())
    eventually(lambda: not client.snapshot(["admin-move"]).not_preferred(["admin-move"]), "preferred leaders")
    assert all(0 not in p.replicas for _, p in client.snapshot(["admin-move"]).partitions())


def _throttled(client: KafkaClusterClient) -> list[str]:
    keys = (settings.LEADERS, settings.FOLLOWERS, settings.LEADER_RATE, settings.FOLLOWER_RATE)
    tables = [client.topic_configs("admin-move"), *(client.broker_configs(b) for b in (0, 1, 2))]
    return [key for table in tables for key in keys if key in table and table[key].is_override and table[key].value]


DEAD, HUNG = (signal.SIGKILL, Finding.CONTROLLER_DEAD), (signal.SIGSTOP, Finding.CONTROLLER_HUNG)


@pytest.mark.parametrize("faults", [[DEAD], pytest.param([DEAD, HUNG], marks=pytest.mark.long)], ids=["dead", "both"])
def test_a_dead_and_then_a_hung_controller_are_recovered(
    own_cluster: RealCluster, faults: list[tuple[signal.Signals, Finding]]
) -> None:
    own_cluster.create("admin-kept", partitions=6)
    for number, finding in faults:
        holder, epoch = own_cluster.controller()
        os.kill(_pid(own_cluster, holder), number)
        result = recover(own_cluster, Expectation(brokers=settings_of(own_cluster).expected_brokers()))
        assert result.finding is finding
        assert result.controller_before == holder != result.controller_after
        assert result.epoch_after > epoch == result.epoch_before
        assert result.restarted == (holder,)
        assert (result.health.led, result.health.under_replicated) == (6, ())
        assert own_cluster.isrs_full("admin-kept")
    again = recover(own_cluster, Expectation(brokers=settings_of(own_cluster).expected_brokers()))
    assert (again.finding, again.actions) == (Finding.HEALTHY, ())


@pytest.mark.long
def test_a_garbled_epoch_is_repaired(own_cluster: RealCluster) -> None:
    """Nobody can be elected over a /controller_epoch that is no number."""
    own_cluster.create("admin-wedged", partitions=3)
    holder, epoch = own_cluster.controller()
    with own_cluster.zookeeper() as zk:
        zk.set("/controller_epoch", b"garbage")
    os.kill(_pid(own_cluster, holder), signal.SIGKILL)
    result = recover(own_cluster, Expectation(brokers=settings_of(own_cluster).expected_brokers()))
    assert result.epoch_after > epoch
    assert result.health.is_full


def test_zookeeper_is_read_as_the_brokers_wrote_it(cluster: RealCluster) -> None:
    cluster.create("admin-states", partitions=2)
    ensemble = KazooEnsemble(str(cluster.description["zookeeper"]))
    try:
        view: Any = ensemble.controller()
        assert (view.holder, view.epoch) == cluster.controller()
        assert sorted(view.brokers) == [0, 1, 2]
        states = ensemble.partitions().states
        assert all(len(states[TopicPartition("admin-states", p)].isr) == 3 for p in (0, 1))
    finally:
        ensemble.close()


def _pid(cluster: RealCluster, broker: int) -> int:
    return next(int(b["pid"]) for b in cluster.description["brokers"] if b["id"] == broker)
