"""Moves of replicas on the page: from the plan to the end, and what they are not taken for."""

import pytest

pytest.importorskip("airflow.sdk")


from logyard.admin.ports import ClusterUnreachable
from logyard.broker.model import TopicPartition
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.page_app import Clock, Connections, PageClient, make_app

pytestmark = pytest.mark.airflow


def test_a_reassignment_from_plan_to_end(cluster: MemoryCluster, known: Connections) -> None:
    clock = Clock()
    cluster.racks = {1: "a", 2: "b", 3: "c", 4: "a"}
    cluster.start(4)
    viewer = PageClient(make_app(cluster, clock))
    assert viewer.json("/api/reassignments")["running"] is False
    plan = viewer.json("/api/plan?topic=u&drain=3&throttle=10")
    assert plan["complete"]
    assert plan["partitions"]
    assert all(3 not in move["replicas"] for move in plan["partitions"])
    assert plan["seconds_at_throttle"] == max(*plan["bytes_in"].values(), *plan["bytes_out"].values()) / 10
    move = plan["partitions"][0]
    tp = TopicPartition(move["topic"], move["partition"])
    cluster.ticks_to_move = 1000
    assert MemoryClient(cluster).alter_reassignments({tp: move["replicas"]}) == {tp: None}
    clock.now = 10.0
    found = viewer.json("/api/reassignments")
    assert (found["running"], found["moves_total"], found["bytes_total"]) == (True, 1, 100)
    assert found["moves"][0]["target"] == move["replicas"]
    assert viewer.json("/api/overview")["reassigning"] == 1
    assert viewer.json("/api/plan?topic=t")["running"] is True
    assert viewer.json("/api/topic?name=u")["partitions"][tp.partition]["adding"] == found["moves"][0]["adding"]
    cluster.moving[tp] = 0
    clock.now = 20.0
    viewer.json("/api/overview")
    clock.now = 30.0
    assert viewer.json("/api/reassignments")["running"] is False


def test_replicas_that_are_being_added_are_no_fault_from_the_first_answer_on(
    cluster: MemoryCluster, known: Connections
) -> None:
    cluster.ticks_to_move, clock = 1000, Clock()
    client, first, second = MemoryClient(cluster), TopicPartition("u", 0), TopicPartition("u", 1)

    def move(tp: TopicPartition) -> None:
        (added,) = {1, 2, 3} - set(cluster.assignments[tp].replicas)
        client.alter_reassignments({tp: (added, cluster.assignments[tp].replicas[0])})

    move(first)
    viewer = PageClient(make_app(cluster, clock))
    for clock.now in (0.0, 10.0):
        found = viewer.json("/api/overview")
        assert (found["health"], found["under_replicated"], found["troubles"]) == ("ok", 0, [])
        move(second) if clock.now == 0 else None  # the moves that were read before do not have it
    cluster.kill(3)
    for clock.now in (20.0, 30.0, 40.0, 50.0):
        found = viewer.json("/api/overview")
    assert found["health"] == "warning"


def test_the_controllers_silence_hides_no_fault(
    cluster: MemoryCluster, known: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(_: MemoryClient) -> None:
        raise ClusterUnreachable("the controller does not answer")

    monkeypatch.setattr(MemoryClient, "list_reassignments", silent)
    clock = Clock()
    viewer = PageClient(make_app(cluster, clock))
    cluster.kill(3)
    for clock.now in (0.0, 10.0, 20.0, 30.0):
        found = viewer.json("/api/overview")
    assert found["findings"][0].endswith("partitions are under-replicated")


def test_a_plan_has_the_bytes_of_now(cluster: MemoryCluster, known: Connections) -> None:
    clock = Clock()
    cluster.sizes = dict.fromkeys(cluster.assignments, 0)
    viewer = PageClient(make_app(cluster, clock))
    path = "/api/plan?topic=u&drain=3"
    assert viewer.json("/api/sizes")["topics"]["u"]["bytes"] == 0
    empty = viewer.json(path)
    assert (empty["bytes_moved"], empty["sizes_taken_at_ms"]) == (0, 0)
    cluster.sizes = dict.fromkeys(cluster.assignments, 100)
    clock.now = 6.0
    filled = viewer.json(path)
    assert filled["bytes_moved"] == 100 * filled["replicas_moved"] > 0
    assert filled["sizes_taken_at_ms"] == 6000


def test_a_plan_leaves_the_replicas_of_a_broker_that_one_broker_does_not_know(
    cluster: MemoryCluster, known: Connections
) -> None:
    """As the operator's does. Nor does it say that such a topic does not exist."""
    cluster.unmet = {2}
    viewer = PageClient(make_app(cluster, clock := Clock()))
    assert viewer.json("/api/plan?topic=t")["partitions"] == []
    cluster.unheard = {"u"}
    clock.now = 10.0
    moves = viewer.json("/api/plan?topic=u&drain=2&replication_factor=2")["partitions"]
    assert len(moves) == len([tp for tp, a in cluster.assignments.items() if tp.topic == "u" and 2 in a.replicas])
    cluster.hung = {cluster.controller or 0}
    clock.now = 20.0
    answer = viewer.answer("/api/plan?topic=t")
    assert answer.status_code == 502, "nobody can tell"
    assert "controller" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("topic=gone", "topic gone does not exist"),
        ("drain=9", "broker 9 is not alive"),
        ("drain=1&drain=2&drain=3", "every live broker is to be drained"),
        ("replication_factor=7", "7 replicas"),
        ("replication_factor=0", "replication_factor: "),
        ("limit=100000", "limit: "),
        ("throttle=x", "throttle: "),
        ("conn_id=%24", "conn_id: "),
    ],
)
def test_an_impossible_plan_says_why(viewer: PageClient, query: str, said: str) -> None:
    answer = viewer.answer(f"/api/plan?{query}")
    assert answer.status_code == 422
    assert said in answer.json()["detail"]
    assert "\n" not in answer.json()["detail"]
