"""Counts, bytes, lag, progress, the controllers' history, documents, plan previews: against slower, simpler ways."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from logyard.admin.cluster import translation
from logyard.admin.cluster.snapshot import (
    BrokerNode,
    ClusterSnapshot,
    DirectorySpace,
    GroupView,
    LogDirs,
    NewTopic,
    PartitionView,
    ReplicaSize,
    TopicView,
    broker_json,
)
from logyard.admin.cluster.told_offsets import ToldOffsets
from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.ports import LATEST, ClusterUnreachable
from logyard.admin.reassignment.disks import DiskTooFull
from logyard.admin.reassignment.unsized import SizesUnknown
from logyard.admin.settings import ClusterSettings
from logyard.broker.model import Assignment, TopicPartition
from logyard.plugins.logyard_ui.cluster.controllers import REMEMBERED, ControllerHistory
from logyard.plugins.logyard_ui.cluster.counts import TOPIC_COLUMNS, count_cluster
from logyard.plugins.logyard_ui.cluster.lag import Lag, read_ends, read_group, read_lag
from logyard.plugins.logyard_ui.cluster.plan_preview import PARTITIONS_MAX, BadPlanRequest, PlanRequest, preview
from logyard.plugins.logyard_ui.cluster.progress import Progress, read_progress
from logyard.plugins.logyard_ui.cluster.sizes import read_sizes, sizes_json
from logyard.plugins.logyard_ui.cluster.state import ControllerEpoch, read_state, replicas_document
from logyard.plugins.logyard_ui.responses.document import Document
from logyard.plugins.logyard_ui.views.brokers import directories_json
from logyard.plugins.logyard_ui.views.groups import group_json
from logyard.plugins.logyard_ui.views.reassignments import moves_json
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster

SETTINGS = ClusterSettings.read("memory:1", {"broker_ids": [1, 2, 3, 9]})
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def _random_snapshot(seed: int) -> ClusterSnapshot:
    """Replicas on living and dead brokers, ISRs that lack some, partitions without a leader, moves."""
    chance = random.Random(seed)
    moving = {}
    alive = {broker: BrokerNode(broker, f"h{broker}", 9092) for broker in range(5) if chance.random() < 0.8}
    topics = {}
    for number in range(20):
        views = []
        for partition in range(chance.randint(1, 6)):
            replicas = tuple(chance.sample(range(6), chance.randint(1, 3)))
            isr = tuple(broker for broker in replicas if chance.random() < 0.8)
            leader = chance.choice([*isr, -1])
            views.append(PartitionView(partition, leader, replicas, isr))
            if chance.random() < 0.2:
                moving[TopicPartition(f"t{number}", partition)] = Assignment(replicas, adding=replicas[-1:])
        topics[f"t{number}"] = TopicView(f"t{number}", tuple(views), internal=number == 3)
    return ClusterSnapshot("c", 0, alive, topics, reassignments=moving)


def test_a_replica_that_is_being_added_is_not_missing() -> None:
    def short(isr: tuple[int, ...], *, moving: Assignment | None) -> bool:
        return PartitionView(0, 1, (1, 2, 3, 4), isr).is_under_replicated(moving)

    move = Assignment((1, 2, 3, 4), adding=(3, 4), removing=(1, 2))
    assert not short((1, 2), moving=move)
    assert short((1,), moving=move)
    assert not short((3, 4), moving=move)  # as in Kafka the number counts
    assert short((1, 2), moving=None)


@pytest.mark.parametrize("seed", range(20))
def test_one_pass_counts_what_many_passes_count(seed: int) -> None:
    snapshot = _random_snapshot(seed)
    found = count_cluster(snapshot.topics, snapshot.brokers, snapshot.reassignments or {})
    assert found.totals.under_replicated == len(snapshot.under_replicated())
    assert found.totals.offline == len(snapshot.unled())
    assert found.totals.not_preferred == len(snapshot.not_preferred())
    assert found.totals.partitions == len(list(snapshot.partitions()))
    for node in snapshot.brokers.values():
        other = broker_json(snapshot, node)
        counts = found.brokers[node.id]
        assert (counts.replicas, counts.leaders) == (other["replicas"], other["leaders"])
    unhealthy = set(map(str, snapshot.unled())) | set(map(str, snapshot.under_replicated()))
    assert {f"{one.topic}-{one.partition}" for one in found.unhealthy} == unhealthy
    offline = [one.offline for one in found.unhealthy]
    assert offline == sorted(offline, reverse=True)
    rows = [dict(zip(TOPIC_COLUMNS, row, strict=True)) for row in found.rows]
    assert [row["name"] for row in rows] == sorted(snapshot.topics)
    for row, placed, led in zip(rows, found.placed, found.led, strict=True):
        name = str(row["name"])
        assert row["under_replicated"] == len(snapshot.under_replicated([name]))
        assert row["offline"] == len(snapshot.unled([name]))
        moves = snapshot.reassignments or {}
        wanted = [
            len(
                set(view.replicas)
                - set(move.adding if (move := moves.get(TopicPartition(name, view.partition))) else ())
            )
            for view in snapshot.topics[name].partitions
        ]
        assert row["replication_factor"] == max(wanted, default=0)
        assert sum(placed) == sum(len(view.replicas) for view in snapshot.topics[name].partitions)
        assert sum(led) == sum(view.leader in found.columns for view in snapshot.topics[name].partitions)


def test_a_map_too_large_is_cut() -> None:
    brokers = {broker: BrokerNode(broker, "h", 1) for broker in range(1000)}
    view = PartitionView(0, 0, (0,), (0,))
    topics = {f"t{n:04}": TopicView(f"t{n:04}", (view,)) for n in range(700)}
    snapshot = ClusterSnapshot("c", 0, brokers, topics)
    content = json.loads(replicas_document(count_cluster(topics, brokers, {}), snapshot).body)
    assert (content["topics_total"], len(content["topics"]), len(content["replicas"])) == (700, 640, 640)


def test_equal_content_has_an_equal_version() -> None:
    first = Document.versioned({"name": "</script>&", "rows": [1]})
    assert first.version == Document.versioned({"name": "</script>&", "rows": [1]}).version
    assert first.version != Document.versioned({"name": "</script>&", "rows": [2]}).version
    assert json.loads(first.body) == {"version": first.version, "name": "</script>&", "rows": [1]}
    assert not set(b"<>&") & set(first.body)
    assert first.compressed is None


def test_the_history_of_controllers() -> None:
    history = ControllerHistory()
    assert history.add(1, None, 10, 10)
    assert not history.add(1, 7, 20, 20)  # its epoch became known
    assert not history.add(1, None, 30, 30)
    assert history.add(1, 8, 40, 40)  # elected again
    assert history.add(None, None, 50, 50)
    assert [(r["id"], r["epoch"], r["since_ms"], r["until_ms"]) for r in history.as_json()] == [
        (None, None, 50, None), (1, 8, 40, 50), (1, 7, 10, 40),
    ]  # fmt: skip
    for number in range(100):
        history.add(number, None, number, number)
    assert len(history.as_json()) == REMEMBERED


def test_an_epoch_read_before_a_term_began_is_not_its_own() -> None:
    cluster = MemoryCluster({1: None, 2: None})
    history = ControllerHistory()
    client = MemoryClient(cluster)
    read_state(client, SETTINGS, None, history, ControllerEpoch(1, 6, 50), 100, 100)
    assert history.as_json()[0]["epoch"] is None
    read_state(client, SETTINGS, None, history, ControllerEpoch(1, 7, 150), 200, 200)
    assert history.as_json()[0]["epoch"] == 7


def test_an_unchanged_state_is_reused() -> None:
    cluster = MemoryCluster({1: None, 2: None})
    client, history = MemoryClient(cluster), ControllerHistory()
    client.create_topic(NewTopic("t", 2, 2))
    client.snapshot()
    first = read_state(client, SETTINGS, None, history, None, 0, 0)
    again = read_state(client, SETTINGS, first, history, None, 1, 1)
    assert again.topics is first.topics
    assert again.counts is first.counts
    assert first.expected == (1, 2, 3, 9)
    client.create_topic(NewTopic("u", 1, 1))
    changed = read_state(client, SETTINGS, again, history, None, 2, 2)
    assert changed.topics.version != first.topics.version


class Stubborn(MemoryClient):
    """A client whose brokers 2 and up do not answer DescribeLogDirs, and that may not read the group `secret`."""

    def replica_sizes(self, brokers: Sequence[int] | None = None) -> list[ReplicaSize]:
        (broker,) = brokers or ()  # each is asked by itself
        if broker >= 2:
            raise ClusterUnreachable(f"broker {broker} is silent")
        future = ReplicaSize(1, "/b", T0, 5, offset_lag=3, is_future=True)
        return [ReplicaSize(1, "/a", T0, 10), ReplicaSize(1, "/a", U0, 1), future]

    def group_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        if group_id == "secret":
            raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "not yours")
        return super().group_offsets(group_id)


def test_a_silent_broker_lacks_only_its_own_bytes() -> None:
    client = Stubborn(MemoryCluster({1: None, 2: None}))
    client.create_topic(NewTopic("t", 1, 2))
    client.snapshot()
    sizes = read_sizes(client, [1, 2])
    assert (set(sizes.answered), dict(sizes.problems)) == ({1}, {2: "broker 2 is silent"})
    found = sizes_json(sizes, client.snapshot())
    assert found == {"topics": {"t": {"bytes": 15, "leader_bytes": 10}}, "brokers": {"1": 16}}  # u is deleted
    assert directories_json(sizes, 1) == [
        {"path": "/a", "bytes": 11, "replicas": 2, "future_replicas": 0, "total": None, "free": None, "online": True},
        {"path": "/b", "bytes": 5, "replicas": 0, "future_replicas": 1, "total": None, "free": None, "online": True},
    ]
    assert directories_json(sizes, 2) is None
    with pytest.raises(ClusterUnreachable, match="broker 2"):
        read_sizes(client, [2, 3])
    late = iter([0.0, 0.0, 99.0])
    assert read_sizes(client, [1, 2], clock=lambda: next(late)).problems == {
        2: "not asked: the others took the whole time"
    }


def test_reading_lag_goes_on_where_it_stopped() -> None:
    cluster = MemoryCluster({1: None})
    client = Stubborn(cluster)
    client.create_topic(NewTopic("t", 2, 1))
    client.snapshot()
    cluster.group_commits = {"a": {T0: 1}, "b": {T0: 2, U0: 9}, "secret": {T0: 3}}
    cluster.end_offsets = {T0: 10}
    snapshot = client.snapshot()
    times = iter([0.0, 0.0, 99.0])
    first = read_lag(client, _groups("a", "b", "secret"), snapshot, None, lambda: next(times))
    assert (set(first.committed), first.of("a"), first.of("b")) == ({"a"}, {T0: 9}, None)
    times = iter([0.0, 0.0, 99.0])
    then = read_lag(client, _groups("a", "b"), snapshot, first, lambda: next(times))
    assert then.of("b") == {T0: 8, U0: None}  # u is not there: nobody knows its end
    assert then.of("a") == {T0: 9}
    every = read_lag(client, _groups("a", "b", "secret"), snapshot, then)
    assert every.problem == "group secret: not yours"
    assert read_lag(client, _groups("a"), snapshot, every).committed.keys() == {"a"}
    assert Lag().of("a") is None


class Parted(MemoryClient):
    """A client between which and broker 2 nothing gets through; broker 2 coordinates the group `b`."""

    asked = 0

    def group_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        if group_id == "b":
            raise ClusterUnreachable("the cluster did not answer: no connection to broker 2")
        return super().group_offsets(group_id)

    def offsets(self, partitions: Sequence[TopicPartition], timestamp: int = LATEST) -> dict[TopicPartition, int]:
        leaders = {tp: view.leader for tp, view in self.snapshot().partitions()}
        if any(leaders[tp] == 2 for tp in partitions):
            self.asked += 1
            raise ClusterUnreachable("the cluster did not answer: no connection to broker 2")
        return super().offsets(partitions, timestamp)


def test_a_broker_that_this_machine_does_not_reach_lacks_only_its_own_lag() -> None:
    """The lag of no group was read as long as one coordinator, or one leader, did not answer the page."""
    cluster = MemoryCluster({1: None, 2: None})
    client = Parted(cluster)
    client.create_topic(NewTopic("t", assignment={0: [1], 1: [2]}))
    client.snapshot()
    cluster.group_commits = {"a": {T0: 1, T1: 1}, "b": {T0: 2}, "c": {T0: 3}}
    cluster.end_offsets = {T0: 10, T1: 10}
    lag = read_lag(client, _groups("a", "b", "c"), client.snapshot(), None)
    assert (lag.of("a"), lag.of("b"), lag.of("c")) == ({T0: 9, T1: None}, None, {T0: 7})
    assert lag.problem == "group b: the cluster did not answer: no connection to broker 2"
    assert client.asked == 1, "for the last offsets, and for the first ones not again"
    with pytest.raises(ClusterUnreachable):
        read_ends(client, [T1], client.snapshot(), set())


class Electing(MemoryClient):
    """A client whose partition `t-1` has another leader than the last snapshot says."""

    def told_offsets(self, leaders: Mapping[TopicPartition, int], timestamp: int = LATEST) -> ToldOffsets:
        told = super().told_offsets({tp: leader for tp, leader in leaders.items() if tp != T1}, timestamp)
        return replace(told, untold={T1: "t-1: NOT_LEADER_OR_FOLLOWER"}) if T1 in leaders else told


def test_an_election_takes_the_lag_of_its_own_partition_alone() -> None:
    """It was the only one without a commit, so nobody told a first offset, and no group had any lag."""
    cluster = MemoryCluster({1: None})
    client = Electing(cluster)
    client.create_topic(NewTopic("t", 2, 1))
    client.snapshot()
    cluster.group_commits = {"a": {T0: 1}}
    cluster.end_offsets = {T0: 10, T1: 10}
    lag = read_lag(client, _groups("a"), client.snapshot(), None)
    assert (lag.of("a"), lag.unread("a")) == ({T0: 9}, {T1: None})
    detail = read_group(client, "a", client.snapshot())
    assert (detail.ends, detail.problem) == ({T0: 10}, None)


def test_partitions_without_a_commit_are_unread() -> None:
    """A group that has committed for one of three partitions has not read the other two; their starts count."""
    cluster = MemoryCluster({1: None})
    client = MemoryClient(cluster)
    client.create_topic(NewTopic("t", 3, 1))
    client.create_topic(NewTopic("u", 1, 1))
    client.snapshot()
    t1, t2 = TopicPartition("t", 1), TopicPartition("t", 2)
    cluster.group_commits = {"a": {T0: 4}, "idle": {}}
    cluster.end_offsets = {T0: 10, t1: 100, t2: 7, U0: 5}
    cluster.start_offsets = {t1: 40}
    snapshot = client.snapshot()
    lag = read_lag(client, [GroupView("a", "Empty"), GroupView("idle", "Stable", 1, "", ("u",))], snapshot, None)
    assert (lag.of("a"), lag.unread("a")) == ({T0: 6}, {t1: 60, t2: 7})
    assert (lag.of("idle"), lag.unread("idle")) == ({}, {U0: 5})  # its member reads u
    detail = read_group(client, "a", snapshot)
    found = group_json(detail, None)
    assert (found["lag"], found["unread"], found["uncommitted"]) == (6, 67, 2)
    rows = [(row["partition"], row["committed"], row["lag"], row["unread"]) for row in found["partitions"]]
    assert rows == [(0, 4, 6, None), (1, None, None, 60), (2, None, None, 7)]


def test_the_topics_of_members_are_known() -> None:
    assignment = {"assigned_partitions": [{"topic": "t", "partitions": [0]}, {"topic": "u", "partitions": [1]}]}
    members = [{"member_assignment": assignment}, {"member_assignment": b"another protocol"}, {}]
    (found,) = translation.groups({"g": {"group_state": "Stable", "protocol_type": "consumer", "members": members}})
    assert (found.members, found.topics) == (3, ("t", "u"))


def _groups(*names: str) -> list[GroupView]:
    return [GroupView(name, "Empty") for name in names]


def test_moves_by_bytes() -> None:
    cluster = MemoryCluster({1: None, 2: None, 3: None})
    client = MemoryClient(cluster)
    client.create_topic(NewTopic("t", assignment={0: [1], 1: [2]}))
    client.snapshot()
    cluster.ticks_to_move = 1000
    client.alter_reassignments({T0: [3, 1], T1: [1]})
    cluster.sizes = {T0: 100, T1: 50}
    running, snapshot = client.list_reassignments(), client.snapshot()
    first = read_progress(client, running, snapshot, None, 0.0)
    assert first.bytes_per_s is None
    # In memory a copy is there at once: say that a part of it was.
    first = Progress(first.sizes, {(T0, 3): 40, (T1, 1): 0}, 0.0)
    then = read_progress(client, running, snapshot, first, 10.0)
    assert then.bytes_per_s == (60 + 50) / 10
    found = moves_json(running, Progress(then.sizes, first.added, 10.0, 11.0), snapshot)
    assert (found["bytes_total"], found["bytes_done"], found["progress"], found["seconds_left"]) == (
        150,
        40,
        0.2667,
        10,
    )
    assert [(m["partition"], m["adding"], m["removing"], m["progress"]) for m in found["moves"]] == [
        (0, [3], [], 0.4), (1, [1], [2], 0.0),
    ]  # fmt: skip
    assert moves_json(running, None, snapshot)["progress"] is None
    assert (moves_json(None, None, snapshot)["running"], moves_json({}, None, snapshot)["running"]) == (None, False)
    gone = moves_json({TopicPartition("gone", 0): Assignment((9, 1), (9,))}, then, snapshot)
    assert (gone["moves"][0]["leader"], gone["moves"][0]["waits_for"]) == (-1, [9])


def test_a_plan_of_too_many_partitions_is_refused() -> None:
    brokers = {broker: BrokerNode(broker, "h", 1) for broker in (1, 2)}
    views = tuple(PartitionView(number, 1, (1,), (1,)) for number in range(PARTITIONS_MAX + 1))
    snapshot = ClusterSnapshot("c", 1, brokers, {"t": TopicView("t", views)})
    with pytest.raises(BadPlanRequest, match="name topics"):
        preview(PlanRequest(balance=True), snapshot, {}, LogDirs())
    few = ClusterSnapshot("c", 1, brokers, {"t": TopicView("t", views[:20])})
    found = preview(PlanRequest(drain=(1,), limit=10), few, None, LogDirs())
    assert (len(found["partitions"]), found["partitions_total"], found["complete"]) == (10, 20, False)
    assert found["running"] is None
    sizes = [ReplicaSize(1, "/d", TopicPartition("t", number), 10) for number in range(20)]
    known = preview(PlanRequest(drain=(1,)), few, None, LogDirs(tuple(sizes)), 1000)
    assert [(b["bytes_peak"], b["capacity"]) for b in known["brokers"]] == [(200, 1000), (200, 1000)]
    with pytest.raises(DiskTooFull, match="broker 2 would hold 200 of its 240 bytes"):
        preview(PlanRequest(drain=(1,)), few, None, LogDirs(tuple(sizes)), ((1, 1000), (2, 240)))
    disks = (DirectorySpace(1, "/d", 1000, 800), DirectorySpace(2, "/d", 1000, 300))
    tight = preview(PlanRequest(drain=(1,)), few, None, LogDirs(tuple(sizes), disks))
    assert [(d["broker"], d["comes"], d["goes"], d["free_least"]) for d in tight["disks"]] == [
        (1, 0, 200, 800), (2, 200, 0, 100),
    ]  # fmt: skip
    assert tight["warnings"] == ["broker 2: its disks will be 90% full while replicas move"]
    full = (disks[0], DirectorySpace(2, "/d", 1000, 199))
    with pytest.raises(DiskTooFull, match="broker 2: 200 B come and 199 B are free"):
        preview(PlanRequest(drain=(1,)), few, None, LogDirs(tuple(sizes), full))
    stated = preview(PlanRequest(drain=(1,)), few, None, LogDirs(tuple(sizes), full), 10_000)
    assert len(stated["warnings"]) == 1


def test_a_preview_says_whose_bytes_it_lacks() -> None:
    snapshot = ClusterSnapshot(
        "c",
        1,
        {broker: BrokerNode(broker, "h", 1) for broker in (1, 2)},
        {"t": TopicView("t", (PartitionView(0, 1, (1,), (1,)),))},
    )
    dirs, untold = LogDirs((ReplicaSize(1, "/d", T0, 10),)), {2: "silent"}
    found = preview(PlanRequest(drain=(1,)), snapshot, {}, dirs, None, untold)
    assert found["warnings"] == ["broker 2 does not tell its bytes (silent): they are not in this plan's numbers"]
    assert [broker["bytes_before"] for broker in found["brokers"]] == [10, None]
    with pytest.raises(SizesUnknown, match=r"broker 2 does not tell its bytes \(silent\): how full"):
        preview(PlanRequest(drain=(1,)), snapshot, {}, dirs, 1000, untold)
