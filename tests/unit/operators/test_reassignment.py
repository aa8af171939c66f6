"""Reassignment from plan to preferred leaders: waves, adoption, throttles, dead targets, foreign moves."""

import asyncio
import json

import pytest

pytest.importorskip("airflow.sdk")

from airflow.sdk.exceptions import TaskDeferred

from logyard.admin import throttles
from logyard.admin.disks import DiskTooFull
from logyard.admin.execution import ForeignReassignment
from logyard.admin.memory import MemoryClient
from logyard.admin.memory_cluster import MemoryCluster
from logyard.admin.planner import PlanImpossible
from logyard.admin.settings import BadSettings
from logyard.admin.snapshot import NewTopic
from logyard.broker.model import TopicPartition
from logyard.operators.decommission import DecommissionBrokerOperator
from logyard.operators.leadership import ElectLeadersOperator
from logyard.operators.reassignment import (
    THROTTLE_BEFORE,
    ExecuteReassignmentOperator,
    PlanReassignmentOperator,
    StalePlan,
)
from logyard.operators.triggers.base import WaitFailed
from logyard.operators.verification import NotAsPlanned, VerifyReassignmentOperator
from tests.support.airflow_tasks import Store, context, remade, run, use

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
    with pytest.raises(TaskDeferred):
        first.execute(context(store))
    assert throttles.LEADERS in cluster.configs["t"]
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
    execute(document, cancel_on_kill=False).on_kill()
    assert cluster.assignments[TopicPartition("t", 0)].is_reassigning
    execute(target).on_kill()
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


def test_killing_a_deferred_task_cancels_its_moves_and_puts_the_throttle_back(cluster: MemoryCluster) -> None:
    document = plan(drain=[1])
    cluster.ticks_to_move = 500
    with pytest.raises(TaskDeferred) as deferred:
        execute(document, throttle="700", deferrable=True).execute(context())
    assert throttles.LEADERS in cluster.configs["t"]
    asyncio.run(remade(deferred.value.trigger).on_kill())
    assert not any(a.is_reassigning for a in cluster.assignments.values())
    assert all(not config for config in cluster.broker_config.values())
    assert cluster.configs["t"] == {}


def test_a_throttle_is_remembered_before_it_is_set(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker dies while it sets the throttle: the next try must not take the half of it for somebody else's."""
    document, store = plan(drain=[1]), Store()
    whole = MemoryClient.alter_broker_configs

    def dies(*_: object, **__: object) -> None:
        raise SystemExit("killed")

    monkeypatch.setattr(MemoryClient, "alter_broker_configs", dies)
    with pytest.raises(SystemExit):
        execute(document, throttle="700").execute(context(store))
    assert throttles.LEADERS in cluster.configs["t"]
    monkeypatch.setattr(MemoryClient, "alter_broker_configs", whole)
    run(execute(document, throttle="700"), context(store))
    assert all(not config for config in cluster.broker_config.values())
    assert cluster.configs["t"] == {}


def test_a_dry_run_names_the_first_wave_and_moves_nothing(cluster: MemoryCluster) -> None:
    document = plan(drain=[1])
    result, _ = run(execute(document, dry_run="True", moves_per_broker=1), context())
    assert len(result["to_do"]) == len(document["partitions"]) > len(result["first_wave"]) > 0
    assert not any(a.is_reassigning for a in cluster.assignments.values())
    would, _ = run(ElectLeadersOperator(task_id="e", dry_run=True), context())
    assert would == {"elected": [], "would_elect": []}


def test_a_plan_says_what_becomes_of_every_broker(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, cluster, throttle=500)
    document = plan(topics=["t"], drain=[1])
    assert [entry["broker"] for entry in document["brokers"]] == [1, 2, 3, 4]
    assert (document["brokers"][0]["bytes_after"], document["brokers"][0]["replicas_after"]) == (0, 0)
    assert document["seconds_at_throttle"] > 0  # at the connection's throttle
    with pytest.raises(BadSettings, match="nowhere"):
        plan(topics=["nowhere"])


def test_disks_are_minded_where_their_capacities_are_known(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = sum(1 in a.replicas for a in cluster.assignments.values()) * 1000
    document = plan(drain=[1], disk_capacities='{"1": 10000, "2": 20000, "3": 20000, "4": 20000}', disk_limit="90")
    assert [entry["capacity"] for entry in document["brokers"]] == [10000, 20000, 20000, 20000]
    with pytest.raises(DiskTooFull, match="are allowed"):
        plan(drain=[1], disk_capacities=held)
    kafka = {"partitions": [{"topic": "t", "partition": 0, "replicas": [2, 3, 4]}]}
    with pytest.raises(DiskTooFull, match="80% are allowed"):
        plan(plan=kafka, disk_capacities=held)
    with pytest.raises(DiskTooFull, match="are allowed"):
        run(DecommissionBrokerOperator(task_id="d", brokers=[1], disk_capacities=held), context())
    assert not any(a.is_reassigning for a in cluster.assignments.values())
    use(monkeypatch, cluster, disk_capacities={str(broker): held for broker in (1, 2, 3, 4)})
    with pytest.raises(DiskTooFull, match="are allowed"):  # the connection tells
        plan(drain=[1])
    assert plan(drain=[1], disk_capacities=50000)["partitions"]
    with pytest.raises(BadSettings, match="1 to 100 percent"):
        plan(disk_capacities=held, disk_limit=101)
    with pytest.raises(BadSettings, match="broker 4's is missing"):
        plan(disk_capacities={"1": 1, "2": 1, "3": 1})


# -- verification ------------------------------------------------------------------------------------


def verify(document: object, **fields: object) -> VerifyReassignmentOperator:
    return VerifyReassignmentOperator(task_id="v", plan=document, **{"poll_interval_s": 0.01, **fields})


@pytest.mark.parametrize("deferrable", [True, False])
def test_what_a_dead_execution_left_is_waited_for_and_cleaned_up(cluster: MemoryCluster, deferrable: bool) -> None:
    cluster.ticks_to_move = 5
    document, ctx = plan(drain=[1]), context()
    with pytest.raises(TaskDeferred):
        execute(document, throttle="700", deferrable=True).execute(ctx)
    before = json.dumps(ctx["ti"].values[THROTTLE_BEFORE])
    result, deferrals = run(verify(json.dumps(document), throttle_before=before, deferrable=deferrable), context())
    assert (result["as_planned"], result["throttle_restored"]) == (len(document["partitions"]), True)
    assert deferrals == int(deferrable)
    assert all(not config for config in cluster.broker_config.values())


def test_moves_that_are_cancelled_meanwhile_are_not_waited_for(cluster: MemoryCluster) -> None:
    document = plan(drain=[1])
    cluster.ticks_to_move = 500
    MemoryClient(cluster).alter_reassignments({TopicPartition("t", 0): (4, 2, 3)})

    class Cancelling(MemoryCluster):
        def tick(self) -> None:
            super().tick()
            if self.looks > 6 and TopicPartition("t", 0) in self.moving:
                MemoryClient(self).alter_reassignments({TopicPartition("t", 0): None})

    cluster.__class__ = Cancelling
    with pytest.raises(NotAsPlanned, match="5 of 5"):
        run(verify(document, deferrable=True), context())


def test_a_plan_that_was_not_carried_out_is_not_as_planned(cluster: MemoryCluster) -> None:
    document = plan(drain=[1])
    with pytest.raises(NotAsPlanned, match="of 5 not as planned"):
        run(verify(document), context())
    with pytest.raises(BadSettings, match="planning"):
        run(verify("null"), context())


def test_an_execution_that_ended_well_leaves_no_throttle_to_restore(cluster: MemoryCluster) -> None:
    document, ctx = plan(drain=[1]), context()
    run(execute(document, throttle="700"), ctx)
    assert ctx["ti"].values[THROTTLE_BEFORE] is None
    assert run(verify(document, throttle_before="null"), context())[0]["throttle_restored"] is False


# -- decommissioning ---------------------------------------------------------------------------------


def decommission(**fields: object) -> DecommissionBrokerOperator:
    return DecommissionBrokerOperator(task_id="d", **{"brokers": "[1]", "poll_interval_s": 0.01, **fields})


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_broker_is_emptied_and_stopped(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, deferrable: bool
) -> None:
    for name in ("START", "STOP"):
        monkeypatch.setenv(f"AIRFLOW__LOGYARD__BROKER_{name}_COMMAND", '["it", "{broker_id}"]')
    operator, store = decommission(deferrable=deferrable, stop_brokers="True", throttle="700"), Store()
    result, deferrals = run(operator, context(store))
    assert (result["empty"], result["stopped"], result["brokers"]) == (True, [1], [1])
    assert bool(deferrals) is deferrable
    assert all(1 not in a.replicas for a in cluster.assignments.values())
    assert (cluster.stopped, store) == ([1], {})
    assert all(not config for config in cluster.broker_config.values())


def test_a_decommission_that_is_tried_again_adopts_its_own_moves(cluster: MemoryCluster) -> None:
    store = Store()
    with pytest.raises(TaskDeferred):
        decommission(deferrable=True).execute(context(store))
    assert any(a.is_reassigning for a in cluster.assignments.values())
    result, _ = run(decommission(), context(store))  # another worker: moves under way are its own, not somebody's
    assert result["empty"] is True
    again, _ = run(decommission(), context())
    assert (again["moved"], again["empty"]) == ([], True)


def test_a_decommission_that_leaves_too_few_needs_a_smaller_factor(cluster: MemoryCluster) -> None:
    with pytest.raises(PlanImpossible, match="smaller replication factor"):
        run(decommission(brokers=[1, 2]), context())
    assert run(decommission(brokers=[1, 2], dry_run=True, replication_factor="2"), context())[0]["to_do"]
    assert run(decommission(brokers=[1, 2], replication_factor="2"), context())[0]["empty"] is True
    with pytest.raises(BadSettings, match="at least one"):
        run(decommission(brokers="[]"), context())


def test_a_topic_that_was_made_meanwhile_is_named(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    late = MemoryClient(cluster)

    class Creating(MemoryCluster):
        def tick(self) -> None:
            super().tick()
            if self.looks == 8 and "u" not in self.configs:
                late.create_topic(NewTopic("u", assignment={0: (1, 2)}))

    cluster.__class__ = Creating
    with pytest.raises(WaitFailed, match=r"still hold replicas of u: run it again"):
        run(decommission(), context())
    assert run(decommission(), context())[0]["empty"] is True
