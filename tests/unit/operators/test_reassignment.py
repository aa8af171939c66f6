"""Reassignment from plan to preferred leaders: waves, adoption, throttles, dead targets, foreign moves."""

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin import throttles
from logyard.admin.execution import ForeignReassignment
from logyard.admin.memory import MemoryClient
from logyard.admin.memory_cluster import MemoryCluster
from logyard.admin.planner import PlanImpossible
from logyard.admin.snapshot import NewTopic
from logyard.broker.model import TopicPartition
from logyard.operators.leadership import ElectLeadersOperator
from logyard.operators.reassignment import ExecuteReassignmentOperator, PlanReassignmentOperator, StalePlan
from logyard.operators.triggers.base import WaitFailed
from tests.support.airflow_tasks import Store, context, run, use

pytestmark = pytest.mark.airflow


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    made = MemoryCluster({1: None, 2: None, 3: None, 4: None})
    client = MemoryClient(made)
    client.create_topic(NewTopic("t", 6, 3))
    client.snapshot()
    made.sizes = dict.fromkeys(made.assignments, 1000)
    use(monkeypatch, made)
    return made


def plan(**goals: object) -> dict[str, object]:
    return run(PlanReassignmentOperator(task_id="plan", **goals), context())[0]


def execute(document: object, **fields: object) -> ExecuteReassignmentOperator:
    return ExecuteReassignmentOperator(task_id="go", plan=document, **{"poll_interval_s": 0.01, **fields})


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_broker_is_drained_in_waves(cluster: MemoryCluster, deferrable: bool) -> None:
    document = plan(topics='["t"]', drain="[1]", throttle="500")
    assert document["bytes_moved"] == 1000 * document["replicas_moved"]
    operator = execute(document, deferrable=deferrable, moves_per_broker=1)
    result, deferrals = run(operator, context())
    assert len(result["moved"]) == len(document["partitions"])
    assert all(1 not in a.replicas for a in cluster.assignments.values())
    assert all(cluster.states[tp].leader == a.replicas[0] for tp, a in cluster.assignments.items())
    assert deferrals == (len(document["partitions"]) if deferrable else 0)
    assert run(execute(document), context())[0]["moved"] == result["moved"]  # a second run finds it done
    assert plan(drain=[1])["partitions"] == []


def test_a_drain_that_leaves_too_few_brokers_is_refused_or_takes_a_smaller_factor(cluster: MemoryCluster) -> None:
    with pytest.raises(PlanImpossible, match="needs 3 replicas"):
        plan(drain="1, 2")
    document = plan(drain="[1, 2]", replication_factor="2")
    run(execute(document), context())
    assert {len(a.replicas) for a in cluster.assignments.values()} == {2}
    assert {b for a in cluster.assignments.values() for b in a.replicas} == {3, 4}


def test_a_retry_adopts_what_runs_and_puts_the_first_trys_throttle_back(cluster: MemoryCluster) -> None:
    document = plan(drain=[1])
    store = Store()
    first = execute(document, throttle="700", deferrable=True)
    from airflow.sdk.exceptions import TaskDeferred

    with pytest.raises(TaskDeferred):
        first.execute(context(store))
    assert cluster.broker_config[2][throttles.LEADER_RATE] == "700"
    # The worker died. The next try finds moves under way and a throttle that it must not take for somebody else's.
    run(execute(document, throttle="700"), context(store))
    assert all(not config for config in cluster.broker_config.values())
    assert cluster.configs["t"] == {}
    assert store == {}


def test_somebody_elses_moves_are_refused(cluster: MemoryCluster) -> None:
    document = plan(plan={"partitions": [{"topic": "t", "partition": 0, "replicas": [4, 2, 3]}]})
    cluster.ticks_to_move = 50
    MemoryClient(cluster).alter_reassignments({TopicPartition("t", 1): (1, 2, 3)})
    with pytest.raises(ForeignReassignment, match="t-1"):
        run(execute(document), context())


def test_a_plan_for_another_state_or_cluster_is_stale(cluster: MemoryCluster) -> None:
    document = plan(drain=[1])
    with pytest.raises(StalePlan, match="cluster other"):
        run(execute({**document, "cluster_id": "other"}), context())
    run(execute({"partitions": [{"topic": "t", "partition": 0, "replicas": [2, 3, 4]}]}), context())
    changed = {**document, "partitions": [e for e in document["partitions"] if e["partition"] != 0]}
    with pytest.raises(StalePlan, match="plan again"):
        run(execute({**changed, "state_hash": "0" * 16}), context())


def test_a_target_that_dies_is_not_waited_for(cluster: MemoryCluster) -> None:
    document = plan(plan={"partitions": [{"topic": "t", "partition": 0, "replicas": [2, 3, 4]}]})
    cluster.ticks_to_move, cluster.ticks_to_expire = 50, 0
    from airflow.sdk.exceptions import TaskDeferred

    store = Store()
    with pytest.raises(TaskDeferred):
        execute(document, deferrable=True, throttle=5).execute(context(store))
    cluster.kill(4)
    with pytest.raises(WaitFailed, match="not alive"):
        run(execute(document, throttle=5), context(store))
    assert not any(a.is_reassigning for a in cluster.assignments.values())
    assert all(not config for config in cluster.broker_config.values())


def test_a_killed_task_cancels_only_where_that_was_asked_for(cluster: MemoryCluster) -> None:
    document = plan(drain=[1])
    cluster.ticks_to_move = 50
    MemoryClient(cluster).alter_reassignments({TopicPartition("t", 0): (4, 2, 3)})
    target = {"partitions": [{"topic": "t", "partition": 0, "replicas": [4, 2, 3]}]}
    execute(document).on_kill()
    assert cluster.assignments[TopicPartition("t", 0)].is_reassigning
    execute(target, cancel_on_kill=True).on_kill()
    assert not cluster.assignments[TopicPartition("t", 0)].is_reassigning


def test_preferred_leaders_are_elected_where_needed(cluster: MemoryCluster) -> None:
    moved = [tp for tp, a in cluster.assignments.items() if a.replicas[0] == 1]
    cluster.ticks_to_expire = 0
    cluster.kill(1)
    for _ in range(3):
        cluster.tick()
    cluster.start(1)
    for _ in range(3):
        cluster.tick()
    result, _ = run(ElectLeadersOperator(task_id="e", topics="[]"), context())
    assert result["elected"] == [str(tp) for tp in sorted(moved)]
    assert run(ElectLeadersOperator(task_id="e"), context())[0]["elected"] == []
