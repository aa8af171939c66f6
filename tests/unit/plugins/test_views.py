"""The views: what each route answers about a cluster."""

import json
import time
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")


from logyard.admin.acls import acls
from logyard.admin.cluster.snapshot import ConfigValue, NewTopic
from logyard.admin.configs.entities import Entity
from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.ports import ClusterUnreachable, Quorum
from logyard.admin.transactions.transactions import Producer, Transaction
from logyard.broker.model import TopicPartition
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_app import Clock, Connections, PageClient, make_app

pytestmark = pytest.mark.airflow

T0 = TopicPartition("t", 0)


def test_the_overview_counts(viewer: PageClient, cluster: MemoryCluster) -> None:
    found = viewer.json("/api/overview")
    assert found["controller"] == {
        "id": 1,
        "alive": True,
        "epoch": None,
        "since_ms": found["controllers"][0]["since_ms"],
    }
    counted = ("topics", "partitions", "replicas", "under_replicated", "offline", "not_preferred", "reassigning")
    assert [found[name] for name in counted] == [2, 9, 24, 0, 0, 0, 0]
    assert (found["health"], found["findings"], found["kind"]) == ("ok", [], "zookeeper")


def test_problems_are_in_the_overview(cluster: MemoryCluster, known: Connections) -> None:
    clock = Clock()
    viewer = PageClient(make_app(cluster, clock))
    viewer.json("/api/overview")
    cluster.kill(3)
    for clock.now in (10.0, 20.0, 30.0, 40.0):
        found = viewer.json("/api/overview")
    assert found["health"] == "warning"
    assert found["findings"] == [f"{found['under_replicated']} partitions are under-replicated", "broker 3 missing"]
    assert found["brokers"] == {"alive": 2, "expected": None, "missing": [3]}
    assert len(found["troubles"]) == found["under_replicated"] > 0
    assert all(3 not in trouble["isr"] and 3 in trouble["replicas"] for trouble in found["troubles"])
    cluster.running = set()
    clock.now = 50.0
    gone = viewer.json("/api/overview")
    assert (gone["reachable"], gone["health"]) == (False, "unreachable")
    assert gone["topics"] == 2  # what was seen last
    assert gone["taken_at_ms"] == 40_000
    assert (gone["problem"], gone["findings"]) == ("no broker answers", ["no broker answers"])
    assert gone["outage"] == {
        "since_ms": 40_000,
        "brokers": ["broker 1 (host1:9092)", "broker 2 (host2:9092)"],
        "broker_ids": [1, 2],
        "advice": "Start them, or check the network between them and Airflow's API server.",
    }
    assert viewer.answer("/api/topics").status_code == 502
    assert viewer.answer("/api/topics").json() == {"detail": "no broker answered"}


def test_a_cluster_that_never_answered_has_only_its_problem(cluster: MemoryCluster, known: Connections) -> None:
    cluster.running = set()
    clock = Clock()
    viewer = PageClient(make_app(cluster, clock))
    found = viewer.json("/api/overview")
    assert (found["reachable"], found["topics"], found["controller"], found["troubles"]) == (False, None, None, [])
    assert found["outage"]["brokers"] == ["memory:1"]  # the connection's address: nobody has told another
    assert "addresses" in found["outage"]["advice"]
    assert cluster.looks == 1
    viewer.answers("/api/overview", "/api/brokers", "/api/groups")
    assert cluster.looks == 1  # what failed is not hammered


def test_the_controllers_history(cluster: MemoryCluster, known: Connections) -> None:
    known.add("logyard_default", extra=json.dumps({"zookeeper": "zk:2181"}))
    clock = Clock()
    viewer = PageClient(make_app(cluster, clock))

    def later(seconds: float) -> list[dict[str, Any]]:
        clock.now += seconds
        viewer.json("/api/overview")
        # ZooKeeper is asked beside: the next look knows what it said.
        for _ in range(200):
            costs = {cost["part"]: cost for cost in viewer.json("/api/polls")["polls"]}
            if costs["epoch"]["looks"]:
                break
        clock.now += 3
        return list(viewer.json("/api/overview")["controllers"])

    assert later(0) == [{"id": 1, "epoch": 1, "since_ms": 0, "until_ms": None}]
    cluster.kill(1)
    cluster.electing = False
    for _ in range(3):
        history = later(3)
    assert history[0]["id"] is None
    assert viewer.json("/api/overview")["findings"][0] == "no controller"
    cluster.electing = True
    later(3)
    history = later(40)
    assert [reign["id"] for reign in history] == [2, None, 1]
    assert history[0]["epoch"] == 2
    assert [reign["until_ms"] for reign in history[1:]] == [reign["since_ms"] for reign in history[:-1]]


def test_a_kraft_cluster_names_its_quorums_leader(cluster: MemoryCluster, known: Connections) -> None:
    cluster.quorum = Quorum(3000, 12)
    found = PageClient(make_app(cluster)).json("/api/overview")
    assert (found["kind"], found["controller"]["id"], found["controller"]["epoch"]) == ("kraft", 3000, 12)
    assert found["health"] == "ok"


@pytest.mark.parametrize(
    ("problem", "controller", "health"),
    [
        (ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not yours"), None, "ok"),
        (ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "nobody"), {"id": None, "alive": False, "epoch": None}, "critical"),
        (ClusterUnreachable("no answer"), {"id": None, "alive": False, "epoch": None}, "critical"),
    ],
)
def test_a_quorum_that_is_refused_or_lost(
    cluster: MemoryCluster,
    known: Connections,
    monkeypatch: pytest.MonkeyPatch,
    problem: Exception,
    controller: dict[str, Any] | None,
    health: str,
) -> None:
    def fail(_: MemoryClient) -> None:
        raise problem

    monkeypatch.setattr(MemoryClient, "quorum", fail)
    found = PageClient(make_app(cluster)).json("/api/overview")
    told = found["controller"]
    assert (found["kind"], found["health"], found["reachable"]) == ("kraft", health, True)
    assert told is None if controller is None else {name: told[name] for name in controller} == controller


def test_a_new_topic_is_found(cluster: MemoryCluster, known: Connections) -> None:
    viewer = PageClient(make_app(cluster))
    assert "late" not in viewer.answer("/api/topics").text
    MemoryClient(cluster).create_topic(NewTopic("late", 2, 1))
    assert len(viewer.json("/api/topic?name=late")["partitions"]) == 2


def test_one_topic(viewer: PageClient) -> None:
    found = viewer.json("/api/topic?name=t")
    first = found["partitions"][0]
    assert (first["leader"], first["replicas"], first["isr"]) == (1, [1, 2, 3], [1, 2, 3])
    assert (first["start"], first["end"], first["records"]) == (1, 9, 8)
    assert first["sizes"] == {"1": 100, "2": 100, "3": 100}
    assert found["bytes"] == 1800
    assert found["configs"][0]["name"] == "cleanup.policy"
    assert found["groups"] == [
        {
            "group": "readers",
            "state": "Stable",
            "members": 2,
            "lag": 6,
            "unread": 0,
            "uncommitted": 5,
            "partitions": {"0": {"committed": 3, "lag": 6}},
        }
    ]
    assert (found["pending"], found["problems"]) == ([], {})
    assert viewer.answer("/api/topic?name=gone").status_code == 404


def test_sensitive_values_are_never_shown(
    cluster: MemoryCluster, known: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    def configs(self: MemoryClient, _: object) -> dict[str, ConfigValue]:
        return {
            "ssl.keystore.password": ConfigValue("hunter2", "STATIC_BROKER_CONFIG", sensitive=True),
            "log.retention.ms": ConfigValue("1", "STATIC_BROKER_CONFIG"),
        }

    monkeypatch.setattr(MemoryClient, "broker_configs", configs)
    monkeypatch.setattr(MemoryClient, "topic_configs", configs)
    viewer = PageClient(make_app(cluster))
    for path in ("/api/broker?id=1", "/api/topic?name=t"):
        answer = viewer.answer(path)
        assert "hunter2" not in answer.text
        assert [(c["name"], c["value"]) for c in answer.json()["configs"]] == [
            ("log.retention.ms", "1"), ("ssl.keystore.password", None),
        ]  # fmt: skip


def test_a_part_that_fails_does_not_fail_the_others(
    cluster: MemoryCluster, known: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a text that may hold anything")

    monkeypatch.setattr(MemoryClient, "replica_sizes", fail)
    found = PageClient(make_app(cluster)).json("/api/topic?name=t")
    assert found["problems"] == {"sizes": "unexpected RuntimeError"}
    assert (found["bytes"], found["partitions"][0]["sizes"], found["records"]) == (None, None, 8)


def test_brokers_and_racks(viewer: PageClient, cluster: MemoryCluster) -> None:
    found = viewer.json("/api/brokers")
    assert [broker["id"] for broker in found["brokers"]] == [1, 2, 3]
    assert sum(broker["leaders"] for broker in found["brokers"]) == 9
    assert sum(broker["bytes"] for broker in found["brokers"]) == 2400
    assert [rack["rack"] for rack in found["racks"]] == ["a", "b", "c"]
    mean = sum(broker["replicas"] for broker in found["brokers"]) / 3
    for broker in found["brokers"]:
        assert broker["skew"]["replicas"] == pytest.approx(broker["replicas"] / mean - 1, abs=0.001)
    one = viewer.json("/api/broker?id=2")
    assert one["broker"] == found["brokers"][1]
    assert one["log_dirs"] == [
        {"path": "/data/2", "bytes": one["broker"]["bytes"], "replicas": 8, "future_replicas": 0}
        | {"total": None, "free": None, "online": True}
    ]
    assert one["broker"]["disk"] is None
    assert viewer.answer("/api/broker?id=9").status_code == 404


def test_brokers_say_how_full_their_disks_are(cluster: MemoryCluster, known: Connections) -> None:
    cluster.disks = {(2, "/data/2"): (1000, 250), (2, "/data/empty"): (4000, 3000)}
    viewer = PageClient(make_app(cluster))
    one = viewer.json("/api/broker?id=2")
    assert [(d["path"], d["total"], d["free"], d["replicas"]) for d in one["log_dirs"]] == [
        ("/data/2", 1000, 250, 8),
        ("/data/empty", 4000, 3000, 0),
    ]
    assert one["broker"]["disk"] == {"total": 5000, "free": 3250, "fullest": 0.75}
    assert [broker["disk"] is None for broker in viewer.json("/api/brokers")["brokers"]] == [True, False, True]


def test_the_map_adds_up(viewer: PageClient) -> None:
    found, brokers = viewer.json("/api/replicas"), viewer.json("/api/brokers")["brokers"]
    assert found["brokers"] == [1, 2, 3]
    for what in ("replicas", "leaders"):
        columns = [sum(row[index] for row in found[what]) for index in range(3)]
        assert columns == found["total"][what] == [broker[what] for broker in brokers]


def test_groups(viewer: PageClient) -> None:
    found = viewer.json("/api/groups")
    assert [(g["group"], g["state"], g["members"], g["topics"], g["lag"]) for g in found["groups"]] == [
        ("readers", "Stable", 2, ["t"], 6)
    ]
    one = viewer.json("/api/group?name=readers")
    assert [member["partitions"] for member in one["members"]] == [[["t", [0]]], []]
    assert (one["partitions"][0]["committed"], one["partitions"][0]["end"], one["lag"]) == (3, 9, 6)
    assert viewer.answer("/api/group?name=nobody").status_code == 404


def test_groups_that_only_zookeeper_has(cluster: MemoryCluster, known: Connections) -> None:
    assert PageClient(make_app(cluster)).json("/api/groups")["old_groups"] == []
    known.add("logyard_default", extra=json.dumps({"zookeeper": "zk:2181"}))
    registration = {"version": 1, "subscription": {"t": 1}, "pattern": "static", "timestamp": "1"}
    cluster.znodes.make("/consumers/old/offsets/t/0", b"4")
    cluster.znodes.make("/consumers/old/offsets/t/1", b"nonsense")
    cluster.znodes.make("/consumers/old/ids/old_host-1", registration, ephemeral=True)
    cluster.znodes.make("/consumers/old/owners/t/0", b"old_host-1-0", ephemeral=True)
    cluster.znodes.make("/consumers/<i>idle/ids")
    found = PageClient(make_app(cluster)).json("/api/groups")
    assert [(g["group"], g["active"], g["consumers"], g["topics"], g["lag"]) for g in found["old_groups"]] == [
        ("<i>idle", False, [], [], 0),
        ("old", True, ["old_host-1"], ["t"], 5),
    ]
    assert len(found["old_groups"][1]["problems"]) == 1
    assert [g["group"] for g in found["groups"]] == ["readers"]


def test_a_leader_that_does_not_answer_lacks_only_its_own_offsets(viewer: PageClient, cluster: MemoryCluster) -> None:
    leaders = {tp.partition: state.leader for tp, state in cluster.states.items() if tp.topic == "t"}
    silent = next(leader for leader in leaders.values() if leader != cluster.controller)
    cluster.hung = {silent}
    found = viewer.json("/api/topic?name=t")
    known = {entry["partition"] for entry in found["partitions"] if entry["end"] is not None}
    assert known == {partition for partition, leader in leaders.items() if leader != silent} != set()
    assert found["problems"]["offsets"] == f"broker {silent}: no answer in time"


def test_open_transactions_of_a_topic(viewer: PageClient, cluster: MemoryCluster) -> None:
    now = time.time_ns() // 1_000_000
    assert viewer.json("/api/topic?name=u")["transactions"] == []
    cluster.producers[T0] = [
        Producer(7, 0, -1, 1, now, 8),
        Producer(5, 1, 2, 1, now - 20 * 60_000, 3),
        Producer(6, 0, -1, 1, now, None),
    ]
    cluster.transactions["seven"] = Transaction("seven", 1, 7, 0, "Ongoing", 60_000, now, (T0,))
    found = viewer.json("/api/topic?name=t")["transactions"]
    names = ("start", "producer_id", "transactional_id", "state", "holds_back", "hangs")
    shown = [tuple(one[name] for name in names) for one in found]
    assert shown == [(3, 5, None, None, True, True), (8, 7, "seven", "Ongoing", False, False)]


def test_who_may_do_what_on_a_topic(viewer: PageClient, cluster: MemoryCluster) -> None:
    client = MemoryClient(cluster)
    client.create_acls(
        [
            *acls.parse({"topic": "t", "principal": "User:alice", "operation": "Read"}),
            *acls.parse({"topic": "*", "principal": "User:<b>", "operation": "Write", "permission": "deny"}),
            *acls.parse({"topic": "u", "principal": "User:bob", "operation": "Read"}),
            *acls.parse({"group": "t", "principal": "User:bob", "operation": "Read"}),
        ]
    )
    client.alter_quotas(Entity(("users",), ("alice",)), {"producer_byte_rate": 1000.0})
    client.alter_quotas(Entity(("users",), ("bob",)), {"producer_byte_rate": 2000.0})
    client.alter_quotas(Entity(("users",), ("",)), {"producer_byte_rate": 3000.0})
    found = viewer.json("/api/topic?name=t")["rights"]
    assert [(one["permission"], one["principal"], one["operation"], one["name"]) for one in found["acls"]] == [
        ("DENY", "User:<b>", "WRITE", "*"),
        ("ALLOW", "User:alice", "READ", "t"),
    ]
    assert (found["authorizer"], found["acls_total"]) == (True, 2)
    assert [(one["user"], one["limits"]) for one in found["quotas"]] == [
        ("", {"producer_byte_rate": 3000.0}),
        ("alice", {"producer_byte_rate": 1000.0}),
    ]


def test_a_cluster_without_authorizer_says_so(viewer: PageClient, cluster: MemoryCluster) -> None:
    cluster.authorizer = False
    assert viewer.json("/api/topic?name=t")["rights"] == {
        "authorizer": False,
        "acls_total": 0,
        "acls": [],
        "quotas": [],
    }
