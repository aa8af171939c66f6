"""Findings: each rule at its limits, what is not known, the route, and the dialogs that mend them."""

import json
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.transactions.transactions import Producer
from logyard.broker.model import Assignment, TopicPartition
from logyard.plugins.logyard_ui.cluster.counts import count_cluster
from logyard.plugins.logyard_ui.cluster.gathering import DAY_MS, Gathered, gather
from logyard.plugins.logyard_ui.cluster.sizes import read_sizes
from logyard.plugins.logyard_ui.findings.rules import DISK_AHEAD_S, RULES, Item, Known, find, readers
from logyard.plugins.logyard_ui.history.disk_forecast import GROWS, DiskForecast
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_app import Clock, Connections, PageClient, make_app
from tests.unit.plugins.conftest import STATIC

pytestmark = pytest.mark.airflow

NOW = 1_000 * DAY_MS
GIB = 1 << 30


def _tp(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)


def _cluster(**topics: dict[int, list[int]]) -> MemoryCluster:
    made = MemoryCluster({1: None, 2: None, 3: None})
    client = MemoryClient(made)
    for name, assignment in topics.items():
        client.create_topic(NewTopic(name, assignment=assignment))
    made.tick()
    for tp in made.assignments:
        made.record_times[tp], made.end_offsets[tp] = NOW, 1
    return made


def _known(made: MemoryCluster, reads: list[str] | None = None) -> Known:
    client = MemoryClient(made)
    snapshot = client.snapshot()
    counts = count_cluster(snapshot.topics, snapshot.brokers, {})
    sizes = read_sizes(client, sorted(snapshot.brokers))
    return Known(snapshot, counts, {}, gather(client, snapshot, NOW), sizes, reads)


def _found(made: MemoryCluster, kind: str, reads: list[str] | None = None) -> list[Item] | None:
    return find(_known(made, reads))[kind]


def _names(items: list[Item] | None) -> list[str | None]:
    return [item.topic for item in items or []]


def test_a_cluster_without_faults_has_no_finding() -> None:
    made = _cluster(t={0: [1, 2], 1: [2, 3], 2: [3, 1]})
    made.disks = {(broker, f"/data/{broker}"): (1000, 500) for broker in (1, 2, 3)}
    assert {kind for kind, items in find(_known(made, ["t"])).items() if items != []} == set()


def test_partitions_that_lack_a_replica_name_who_is_dead() -> None:
    made = _cluster(t={0: [1, 2]}, u={0: [3]})
    made.kill(2)
    made.kill(3)
    for _ in range(5):
        made.tick()
    assert _found(made, "offline") == [Item(1, "u")]
    (item,) = [item for item in _found(made, "under_replicated") or [] if item.topic == "t"]
    assert (item.number, item.values) == (1, {"out_of_sync": [2], "dead": [2]})


def test_disks_that_are_full_or_will_be_soon() -> None:
    made = _cluster(t={0: [1, 2], 1: [2, 3], 2: [3, 1]})
    assert _found(made, "disk_full") is None, "brokers before version 4 do not tell"
    made.disks = {
        (1, "/data/1"): (1000, 101),
        (2, "/data/2"): (1000, 100),
        (2, "/data/more"): (2000, 20),
        (3, "/data/3"): (1000, 900),
    }
    two = [
        Item(99.0, broker=2, values={"path": "/data/more", "free": 20, "full_in_s": None}),
        Item(90.0, broker=2, values={"path": "/data/2", "free": 100, "full_in_s": None}),
    ]
    assert _found(made, "disk_full") == two
    soon = DiskForecast(3, "/data/3", 1000, 900, GROWS, 86_400, 300, DISK_AHEAD_S)
    later = DiskForecast(1, "/data/1", 1000, 101, GROWS, 86_400, 1, DISK_AHEAD_S + 1)
    found = find(replace(_known(made), disks=[soon, later]))["disk_full"]
    assert found == [*two, Item(10.0, broker=3, values={"path": "/data/3", "free": 900, "full_in_s": DISK_AHEAD_S})]


def test_replicas_that_a_move_adds_are_no_finding() -> None:
    made = _cluster(t={0: [1, 2]})
    known = _known(made)
    moving = {_tp("t"): Assignment((1, 2, 3), (3,), ())}
    behind = known.snapshot.topics["t"].partitions[0]
    assert behind.isr == (1, 2)
    assert RULES["under_replicated"](Known(known.snapshot, known.counts, moving)) == []


def test_a_replica_that_a_move_adds_is_not_named_beside_one_that_is_out_of_sync() -> None:
    made = _cluster(t={0: [1, 2, 3]})
    made.kill(2)
    for _ in range(5):
        made.tick()
    known = _known(made)
    (view,) = known.snapshot.topics["t"].partitions
    assert view.isr == (1, 3)
    moved = replace(view, replicas=(1, 2, 3, 4))
    snapshot = replace(known.snapshot, topics={"t": replace(known.snapshot.topics["t"], partitions=(moved,))})
    moving = {_tp("t"): Assignment((1, 2, 3, 4), (4,), ())}
    (item,) = RULES["under_replicated"](Known(snapshot, known.counts, moving)) or []
    assert item.values["out_of_sync"] == [2]
    counts = count_cluster(snapshot.topics, snapshot.brokers, moving)
    (unhealthy,) = counts.unhealthy
    assert (unhealthy.replicas, unhealthy.isr, unhealthy.adding) == ((1, 2, 3, 4), (1, 3), (4,))


def test_one_replica_and_too_many_in_sync() -> None:
    made = _cluster(alone={0: [1], 1: [2]}, tight={0: [1, 2]}, wide={0: [1, 2]}, three={0: [1, 2, 3]})
    made.configs["tight"] = {"min.insync.replicas": "2", "retention.ms": "5"}
    made.configs["wide"] = {"min.insync.replicas": "3"}
    made.configs["three"] = {"min.insync.replicas": "2"}
    assert _found(made, "replication_factor_1") == [Item(2, "alone", values={"partitions": 2})]
    found = _found(made, "min_insync")
    assert _names(found) == ["wide", "tight"]  # what can never be written comes first
    assert found is not None
    overrides = {"min.insync.replicas": "2", "retention.ms": "5"}
    assert found[1].values == {"min_insync": 2, "replication_factor": 2, "overrides": overrides}


def test_a_topic_is_idle_by_the_times_of_all_its_partitions() -> None:
    made = _cluster(busy={0: [1], 1: [2]}, week={0: [1]}, year={0: [1]}, edge={0: [1]}, new={0: [1]})
    made.record_times |= {_tp("busy"): NOW - 400 * DAY_MS, _tp("week"): NOW - 8 * DAY_MS, _tp("year"): 1}
    made.record_times |= {_tp("edge"): NOW - 7 * DAY_MS, _tp("new"): -1}  # nothing was ever written to the last
    made.end_offsets.pop(_tp("new"))
    found = _found(made, "idle") or []
    assert [(item.topic, item.number) for item in found] == [("year", 365), ("week", 7)]


def test_a_topic_whose_leader_is_gone_is_not_called_idle() -> None:
    made = _cluster(lost={0: [1], 1: [3]})
    made.record_times = dict.fromkeys(made.record_times, 1)
    made.kill(3)
    for _ in range(5):
        made.tick()
    assert _found(made, "idle") == []


def test_topics_that_nobody_reads() -> None:
    made = _cluster(read={0: [1]}, unread={0: [1], 1: [2]}, empty={0: [1]})
    made.end_offsets.clear()
    for tp in (_tp("read"), _tp("unread"), _tp("unread", 1)):
        made.end_offsets[tp] = 7
    made.sizes = {_tp("unread"): 100}
    assert _found(made, "unread", ["read"]) == [Item(14, "unread", values={"bytes": 100, "records": 14})]
    assert _found(made, "unread") is None  # while a group is not read, nobody knows


def test_readers_need_every_group() -> None:
    topics: dict[str, tuple[str, ...]] = {"g": ("assigned",), "h": ()}
    assert readers(topics, {"g": []}) is None
    assert readers(topics, {"g": [], "h": [_tp("committed")]}) == {"assigned", "committed"}


def test_skew_of_brokers_and_of_partitions() -> None:
    made = _cluster(t={n: [1, 2] for n in range(6)}, u={n: [2 + n % 2, 1] for n in range(3)})
    found = _found(made, "leader_skew") or []
    assert [(item.broker, item.number, item.values["mean"]) for item in found] == [(1, 6, 3.0)]
    made.sizes = {_tp("t", 0): 5 * GIB, _tp("t", 1): 1}
    (skewed,) = _found(made, "partition_skew") or []
    assert (skewed.topic, skewed.number) == ("t", 6.0)
    assert (skewed.values["partition"], skewed.values["bytes"]) == (0, 5 * GIB)
    assert [item.broker for item in _found(made, "byte_skew") or []] == [1, 2]
    made.sizes[_tp("t", 0)] = GIB - 1
    assert (_found(made, "partition_skew"), _found(made, "byte_skew")) == ([], [])


def test_small_segments_by_their_size_and_by_their_time() -> None:
    made = _cluster(small={0: [1, 2]}, few={0: [1]}, rolled={0: [1]}, large={0: [1]})
    day = {"retention.ms": str(7 * DAY_MS)}
    made.configs |= {"small": {"segment.bytes": "1048576"}, "few": {"segment.bytes": "1048576"}}
    rolled = {"segment.ms": "600000", "segment.bytes": str(GIB)} | day
    made.configs |= {"rolled": dict(rolled), "large": dict(rolled)}
    made.sizes = {_tp("small"): 200 << 20, _tp("few"): 99 << 20, _tp("rolled"): 100 << 20, _tp("large"): 100 * GIB}
    found = _found(made, "small_segments") or []
    assert [(item.topic, item.number, item.values["by_time"]) for item in found] == [
        ("rolled", 1008, True),
        ("small", 200, False),
    ]
    made.record_times[_tp("rolled")] = 1  # nothing is written: no segment is closed
    assert _names(_found(made, "small_segments")) == ["small"]


def test_hanging_transactions_by_topic() -> None:
    made = _cluster(t={0: [1], 1: [2]})
    made.producers = {_tp("t", n): [Producer(4000 + n, 0, -1, 7, 1_000 + n, 5)] for n in range(2)}
    assert _found(made, "hanging") == [Item(2, "t", values={"since_ms": 1_000})]


def test_what_cannot_be_read_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not yours")

    monkeypatch.setattr(MemoryClient, "describe_producers", refuse)
    monkeypatch.setattr(MemoryClient, "topics_configs", refuse)
    found = gather(MemoryClient(made := _cluster(t={0: [1]})), MemoryClient(made).snapshot(), NOW)
    assert (found.settings, found.hanging) == (None, None)
    assert found.problems == {"configs": "not yours", "transactions": "not yours"}
    assert found.ends is not None
    known = _known(made)
    items = find(Known(known.snapshot, known.counts, {}, Gathered()))
    assert {kind for kind, one in items.items() if one is None} == {
        *("hanging", "min_insync", "byte_skew", "partition_skew", "small_segments", "unread", "idle", "disk_full")
    }


def test_the_route_tells_all_kinds(cluster: MemoryCluster, known: Connections) -> None:
    clock = Clock()
    clock.now = NOW / 1000
    viewer = PageClient(make_app(cluster, clock))
    found = viewer.json("/api/findings")
    kinds = {finding["kind"]: finding for finding in found["findings"]}
    assert list(kinds) == list(RULES)
    assert [item["topic"] for item in kinds["idle"]["items"]] == ["t"]  # u is empty
    assert kinds["unread"]["items"] == []  # "readers" reads t, and u has no records
    assert kinds["replication_factor_1"] == {"kind": "replication_factor_1", "total": 0, "items": []}
    assert found["looked_at"] == {"topics": 2, "settings_of": 2, "partitions": 9, "transactions_of": 9}


# One item of each kind, as the server gives it.
ITEMS: dict[str, dict[str, Any]] = {
    "offline": {"number": 1},
    "under_replicated": {"number": 2, "values": {"out_of_sync": [2], "dead": [2]}},
    "hanging": {"number": 1, "values": {"since_ms": 1}},
    "min_insync": {
        "number": 0,
        "values": {"min_insync": 2, "replication_factor": 2, "overrides": {"min.insync.replicas": "2", "a": "1"}},
    },
    "replication_factor_1": {"number": 3, "values": {"partitions": 3}},
    "leader_skew": {"number": 6, "broker": 1, "topic": None, "values": {"mean": 3, "not_preferred": 2}},
    "byte_skew": {"number": 6e9, "broker": 1, "topic": None, "values": {"mean": 3e9}},
    "disk_full": {
        "number": 93.5,
        "broker": 1,
        "topic": None,
        "values": {"path": "/d", "free": 1e9, "full_in_s": 2.6e5},
    },
    "partition_skew": {"number": 4.5, "values": {"partition": 0, "bytes": 5e9, "mean": 1e9}},
    "small_segments": {
        "number": 200,
        "values": {"replicas": 3, "each": 1, "by_time": False, "overrides": {"segment.bytes": "1048576"}},
    },
    "unread": {"number": 14, "values": {"bytes": 100, "records": 14}},
    "idle": {"number": 30, "values": {"bytes": 100, "records": None}},
}


def test_each_kind_is_told_and_mended_by_what_a_dag_takes(pure: Any) -> None:
    items = {kind: {"topic": "t", "broker": None, "values": {}} | item for kind, item in ITEMS.items()}
    assert set(items) == set(RULES)
    forms = f"const f = await import({json.dumps((STATIC / 'forms.js').as_uri())})"
    acts = f"const a = await import({json.dumps((STATIC / 'actions.js').as_uri())})"
    asked = (
        f"Object.entries({json.dumps(items)}).map(([kind, item]) => {{ const spec = m.KINDS[kind];"
        " const mend = spec.mend(item, {brokers: [1, 2, 3]}); const action = a.ACTIONS[mend.action];"
        " const filled = mend.place ? null : f.starting(action, mend.values);"
        " return [kind, spec.told(item), spec.why, mend, action.dag, filled && action.conf(filled),"
        " filled && f.wrong(action, filled), filled && action.check?.(filled)]; })"
    )
    found = pure("finding_kinds.js", asked, f"{forms}; {acts}")
    mends = {}
    for kind, told, why, mend, action, conf, wrong, problem in found:
        assert told, kind
        assert why.endswith("."), kind
        mends[kind] = conf
        if mend.get("place"):
            assert mend["place"]["view"] == "reassignments", kind
            continue
        assert (wrong, problem or "") == ({}, ""), kind
        dag = getattr(import_module(f"logyard.dags.factories.{action}"), f"{action}_dag")(f"findings_{kind}_")
        for key, value in conf.items():
            dag.params.get_param(key).resolve(value)
    assert mends["min_insync"] == {"topic": "t", "alter": {"min.insync.replicas": "1"}}
    assert mends["small_segments"] == {"topic": "t", "alter": {"segment.bytes": None}}
    assert mends["hanging"] == {"topics": ["t"], "approve": True}


def test_one_broker_cannot_hold_two_replicas(pure: Any) -> None:
    asked = (
        "[m.KINDS.replication_factor_1.mend({topic: 't'}, {brokers: [1]}),"
        " m.KINDS.replication_factor_1.all([{topic: 't'}, {topic: 'u'}], {brokers: [1, 2]}).place,"
        " m.KINDS.under_replicated.mend({values: {dead: [], out_of_sync: [2]}})]"
    )
    place = {"view": "reassignments", "preview": 1, "topics": "t, u", "rf": 2}
    assert pure("finding_kinds.js", asked) == [None, place, None]
