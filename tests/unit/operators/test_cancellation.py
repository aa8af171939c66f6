"""Moves that somebody else started are cancelled: what was looked at, nothing that would be left without a leader."""

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.reassignment.cancellation import plan_cancellation
from logyard.admin.reassignment.plan import Move
from logyard.admin.reassignment.throttles import settings
from logyard.broker.model import TopicPartition
from logyard.operators.airflow_names import AirflowFailException
from logyard.operators.approval import cancellation_markdown, is_empty
from logyard.operators.cancellation import CancelReassignmentOperator, HeldByRun
from logyard.operators.killing import end_moves
from tests.support.airflow_tasks import context, run, use
from tests.support.memory_clients import MemoryClient, MemoryPause
from tests.support.memory_cluster import MemoryCluster

pytestmark = pytest.mark.airflow

ONE, TWO, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    """Three moves under way that no plan of ours knows."""
    made = MemoryCluster({1: None, 2: None, 3: None, 4: None}, ticks_to_move=10_000, ticks_to_expire=0)
    client = MemoryClient(made)
    client.create_topic(NewTopic("t", assignment={0: (1, 2), 1: (2, 1)}))
    client.create_topic(NewTopic("u", assignment={0: (1,)}))
    client.snapshot()
    client.alter_reassignments({ONE: (3, 2), TWO: (2, 3), OTHER: (4,)})
    use(monkeypatch, made)
    return made


def cancel(**fields: Any) -> CancelReassignmentOperator:
    return CancelReassignmentOperator(task_id="c", **fields)


def moving(cluster: MemoryCluster) -> list[TopicPartition]:
    return sorted(tp for tp, placed in cluster.assignments.items() if placed.is_reassigning)


def test_what_was_looked_at_is_cancelled(cluster: MemoryCluster) -> None:
    planned, _ = run(cancel(topics='["t"]', dry_run="true"), context())
    assert planned["cancelled"][0] == {"topic": "t", "partition": 0, "target": [3, 2], "replicas": [2, 1]}
    assert moving(cluster) == [ONE, TWO, OTHER]
    assert "`t-0`: [3, 2] → [2, 1]" in cancellation_markdown(planned)
    MemoryClient(cluster).alter_reassignments({TWO: (4, 1)})  # meanwhile somebody thinks again
    done, _ = run(cancel(plan=planned), context())
    assert [entry["partition"] for entry in done["cancelled"]] == [0]
    assert done["kept"] == {"t-1": "it now moves to [4, 1], not to [2, 3]: check again"}
    assert moving(cluster) == [TWO, OTHER]
    assert cluster.assignments[ONE].replicas == (2, 1)  # Kafka gives back the order of the move, too
    again, _ = run(cancel(plan=planned), context())
    assert again["cancelled"] == []
    assert is_empty(again)


def test_nothing_is_left_without_a_leader(cluster: MemoryCluster) -> None:
    cluster.kill(1)
    done, _ = run(cancel(), context())
    assert {entry["topic"] for entry in done["cancelled"]} == {"t"}
    assert done["kept"] == {
        "u-0": "none of its former replicas [1] is known to be alive and in sync: start one of these brokers first"
    }
    assert moving(cluster) == [OTHER]


def test_what_is_not_known_to_have_a_leader_afterwards_is_not_cancelled(cluster: MemoryCluster) -> None:
    """The broker that was asked does not know the topic, and nobody else can tell."""
    client = MemoryClient(cluster)
    running = client.list_reassignments()
    behind = replace(client.snapshot(), topics={}, missing=())
    assert plan_cancellation(behind, running).moves == ()


def test_a_killed_task_asks_who_knows_its_topic(cluster: MemoryCluster) -> None:
    cluster.unheard = {"t"}
    client = MemoryClient(cluster)
    moves = [Move(tp, a.origin, a.target) for tp, a in client.list_reassignments().items()]
    end_moves(client, moves, None, MemoryPause(cluster), cluster.cluster_id)
    assert moving(cluster) == []


def test_throttles_go_with_the_last_move(cluster: MemoryCluster) -> None:
    client = MemoryClient(cluster)
    client.alter_topic_configs("t", {settings.LEADERS: "0:1", settings.FOLLOWERS: "*"})
    for broker in (1, 4):
        client.alter_broker_configs(broker, {settings.LEADER_RATE: "9"})
    first, _ = run(cancel(topics=["t"]), context())
    assert first["throttles_removed"] == ["topic t"]  # a move still runs that the rates may be for
    assert client.topic_configs("t")[settings.FOLLOWERS].value == "*"
    assert client.broker_configs(1)[settings.LEADER_RATE].value == "9"
    last, _ = run(cancel(), context())
    assert last["throttles_removed"] == ["broker 1", "broker 4"]
    assert not any(cluster.broker_config.values())


def test_throttles_stay_where_that_is_wanted_and_go_in_a_later_try(cluster: MemoryCluster) -> None:
    client = MemoryClient(cluster)
    client.alter_broker_configs(1, {settings.LEADER_RATE: "9"})
    planned, _ = run(cancel(dry_run=True), context())
    assert run(cancel(plan=planned, remove_throttles=False), context())[0]["throttles_removed"] == []
    # The try that cancelled the moves died; the next one finds none, and the throttle.
    found, _ = run(cancel(plan=planned), context())
    assert (found["cancelled"], found["throttles_removed"]) == ([], ["broker 1"])


def test_a_plan_cancels_and_unthrottles_nothing_in_another_cluster(cluster: MemoryCluster) -> None:
    planned, _ = run(cancel(dry_run=True), context())
    MemoryClient(cluster).alter_topic_configs("t", {settings.FOLLOWERS: "*"})
    cluster.cluster_id = "elsewhere"
    with pytest.raises(AirflowFailException, match=r"led to cluster memory when .* leads to elsewhere now"):
        run(cancel(plan=planned), context())
    assert moving(cluster) == [ONE, TWO, OTHER]
    assert cluster.configs["t"] == {settings.FOLLOWERS: "*"}


def test_moves_of_a_run_of_ours_are_its_own_affair(cluster: MemoryCluster) -> None:
    ctx = context()
    ctx["ti"].others = {"a_reassign_replicas": {"manual__1": {"execute": "deferred"}}}
    with pytest.raises(HeldByRun, match="run manual__1 of a_reassign_replicas moves replicas: mark its task execute"):
        run(cancel(holders={"a_reassign_replicas": "execute"}), ctx)
    assert len(moving(cluster)) == 3
    # One that waits for its approval moves nothing.
    ctx["ti"].others = {"a_reassign_replicas": {"manual__1": {"approve": "awaiting_input"}}}
    run(cancel(holders={"a_reassign_replicas": "execute", "a_decommission_broker": "decommission"}), ctx)
    assert moving(cluster) == []


def test_a_plan_of_something_else_is_refused(cluster: MemoryCluster) -> None:
    with pytest.raises(AirflowFailException, match="expected the result of a dry run of CancelReassignmentOperator"):
        run(cancel(plan={"partitions": []}), context())
