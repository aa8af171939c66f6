"""Reassignment from plan to preferred leaders: waves, adoption, throttles, dead targets, foreign moves."""

import asyncio
import json

import pytest

pytest.importorskip("airflow.sdk")

from airflow.sdk.exceptions import TaskDeferred

from logyard.admin import throttles
from logyard.admin.disks import DiskTooFull
from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.execution import ForeignReassignment
from logyard.admin.memory import MemoryClient
from logyard.admin.memory_cluster import MemoryCluster
from logyard.admin.planner import PlanImpossible
from logyard.admin.ports import ClusterUnreachable
from logyard.admin.settings import BadSettings
from logyard.admin.snapshot import NewTopic
from logyard.broker.model import TopicPartition
from logyard.operators.decommission import DecommissionBrokerOperator
from logyard.operators.leadership import ElectLeadersOperator
from logyard.operators.reassignment import ExecuteReassignmentOperator, PlanReassignmentOperator, StalePlan
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
    # One partition has come to where the plan wants it; that does not make the other's part of it fresh.
    replicas = {p: list(cluster.assignments[TopicPartition("t", p)].replicas) for p in (0, 1)}
    (spare,) = {1, 2, 3, 4} - set(replicas[0])
    wanted = [{"topic": "t", "partition": 0, "replicas": [spare, *replicas[0][1:]]}]
    (other,) = {1, 2, 3, 4} - set(replicas[1])
    wanted += [{"topic": "t", "partition": 1, "replicas": [other, *replicas[1][1:]]}]
    document = plan(plan={"partitions": wanted})
    run(execute({"partitions": [wanted[0], {**wanted[1], "replicas": [replicas[1][0], other]}]}), context())
    before = dict(cluster.assignments)
    with pytest.raises(StalePlan, match=r"t-1 is on .* plan again"):
        run(execute(document), context())
    assert cluster.assignments == before


def test_a_target_that_dies_is_not_waited_for(cluster: MemoryCluster) -> None:
    document = plan(plan={"partitions": [{"topic": "t", "partition": 0, "replicas": [2, 3, 4]}]})
    cluster.ticks_to_move, cluster.ticks_to_expire = 50, 0
    store = Store()
    with pytest.raises(TaskDeferred):
        execute(document, deferrable=True, throttle=5).execute(context(store))
    cluster.kill(4)
    with pytest.raises(WaitFailed, match="was away for 0 s"):
        run(execute(document, throttle=5, broker_patience_s=0.0), context(store))
    assert not any(a.is_reassigning for a in cluster.assignments.values())
    assert [b for b, config in cluster.broker_config.items() if config] == [4]  # nobody can reach it
    cluster.start(4)
    with pytest.raises(NotAsPlanned):
        run(verify(document), context(task_id="v"))
    assert not throttled(cluster)


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
    assert any(cluster.broker_config.values())
    result, deferrals = run(verify(json.dumps(document), deferrable=deferrable), context(task_id="v"))
    assert (result["as_planned"], result["throttles_ended"]) == (len(document["partitions"]), 1)
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


def test_an_execution_that_ended_well_leaves_no_throttle_to_end(cluster: MemoryCluster) -> None:
    document = plan(drain=[1])
    run(execute(document, throttle="700"), context())
    assert run(verify(document), context(task_id="v"))[0]["throttles_ended"] == 0


def test_a_verification_keeps_what_others_have_set_since(cluster: MemoryCluster) -> None:
    document = plan(drain=[1])
    with pytest.raises(TaskDeferred):
        execute(document, throttle="700", deferrable=True).execute(context())
    MemoryClient(cluster).alter_broker_configs(2, {throttles.LEADER_RATE: "33"})
    run(verify(document), context(task_id="v"))
    assert cluster.broker_config[2] == {throttles.LEADER_RATE: "33"}
    assert not any(cluster.broker_config[b] for b in (1, 3, 4))


# -- throttles that are left, shared or not wanted ---------------------------------------------------


def throttled(cluster: MemoryCluster) -> bool:
    return any(cluster.broker_config.values()) or any(cluster.configs.values())


def test_a_wave_that_is_refused_ends_its_throttle(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    document = plan(drain=[1])
    refusal = ApiError(ErrorCode.POLICY_VIOLATION, "not today")
    monkeypatch.setattr(MemoryClient, "alter_reassignments", lambda _, targets: dict.fromkeys(targets, refusal))
    with pytest.raises(ApiError, match="not today"):
        run(execute(document, throttle="700"), context())
    assert not throttled(cluster)


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_wait_that_times_out_leaves_a_throttle_only_for_moves_that_run_on(
    cluster: MemoryCluster, deferrable: bool
) -> None:
    document = plan(drain=[1])
    cluster.ticks_to_move = 5000
    with pytest.raises(WaitFailed, match="gave up waiting"):
        run(execute(document, throttle="700", wait_timeout_s=0.05, deferrable=deferrable), context())
    assert throttled(cluster)
    client = MemoryClient(cluster)
    client.alter_reassignments(dict.fromkeys(client.list_reassignments()))
    with pytest.raises(NotAsPlanned):
        run(verify(document), context(task_id="v"))
    assert not throttled(cluster)


def test_a_cluster_that_stops_answering_leaves_a_throttle_that_any_later_run_ends(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    document, whole = plan(drain=[1]), MemoryClient.alter_reassignments

    def gone(*_: object, **__: object) -> None:
        monkeypatch.setattr(MemoryClient, "snapshot", gone)
        raise ClusterUnreachable("no broker answered")

    snapshot = MemoryClient.snapshot
    monkeypatch.setattr(MemoryClient, "alter_reassignments", gone)
    with pytest.raises(ClusterUnreachable):
        run(execute(document, throttle="700"), context())
    monkeypatch.setattr(MemoryClient, "alter_reassignments", whole)
    monkeypatch.setattr(MemoryClient, "snapshot", snapshot)
    assert throttled(cluster)
    other = {"partitions": [{"topic": "t", "partition": 0, "replicas": [4, 2, 3]}]}
    still_working = context(run_id="another")
    still_working["ti"].others = {"dag": {"run": {"go": "up_for_retry"}}}
    run(execute(other), still_working)
    assert throttled(cluster)  # it will try again, and is left alone
    run(execute(other), context(run_id="third"))
    assert not throttled(cluster)


def test_of_two_runs_neither_keeps_the_others_throttle(cluster: MemoryCluster) -> None:
    cluster.ticks_to_move = 5000
    MemoryClient(cluster).alter_broker_configs(2, {throttles.LEADER_RATE: "9", throttles.FOLLOWER_RATE: "9"})
    before = {2: dict(cluster.broker_config[2])}
    plans = [{"partitions": [{"topic": "t", "partition": p, "replicas": [4, 2, 3]}]} for p in (0, 2)]
    with pytest.raises(TaskDeferred):
        execute(plans[0], throttle="700", deferrable=True).execute(context())
    working = context(run_id="second")
    working["ti"].others = {"dag": {"run": {"go": "deferred"}}}
    with pytest.raises(TaskDeferred):
        execute(plans[1], throttle="800", deferrable=True, allow_others=True).execute(working)
    cluster.moving = dict.fromkeys(cluster.moving, 1)
    first = context()
    first["ti"].others = {"dag": {"second": {"go": "deferred"}}}
    run(execute(plans[0], throttle="700", allow_others=True), first)
    assert cluster.broker_config[2][throttles.LEADER_RATE] == "800"
    run(execute(plans[1], throttle="800", allow_others=True), working)
    assert {b: config for b, config in cluster.broker_config.items() if config} == before
    assert cluster.configs["t"] == {}


@pytest.mark.parametrize(("said", "rate"), [(None, "500"), ("", "500"), ("0", None), (0, None), ("70", "70")])
def test_a_run_may_want_no_throttle_although_the_connection_has_one(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, said: object, rate: str | None
) -> None:
    use(monkeypatch, cluster, throttle=500)
    document = plan(drain=[1], throttle=said)
    assert (document["seconds_at_throttle"] is None) is (rate is None)
    with pytest.raises(TaskDeferred):
        execute(document, throttle=said, deferrable=True).execute(context())
    assert cluster.broker_config.get(1, {}).get(throttles.LEADER_RATE) == rate


# -- brokers that are away -----------------------------------------------------------------------------


def without_broker(cluster: MemoryCluster, broker: int) -> None:
    cluster.ticks_to_expire = 0
    cluster.kill(broker)
    for _ in range(3):
        cluster.tick()
    assert broker not in cluster.sessions


@pytest.mark.parametrize("how", ["execute", "decommission"])
def test_replicas_of_a_dead_broker_are_moved_under_a_throttle(cluster: MemoryCluster, how: str) -> None:
    without_broker(cluster, 1)
    document = plan(drain=[1])
    operator = execute(document, throttle="700") if how == "execute" else decommission(throttle="700")
    run(operator, context())
    assert all(1 not in a.replicas for a in cluster.assignments.values())
    assert not throttled(cluster)


def test_a_dead_broker_that_comes_back_is_throttled_too(cluster: MemoryCluster) -> None:
    without_broker(cluster, 1)
    document, ctx = plan(drain=[1]), context()
    cluster.ticks_to_move = 500
    with pytest.raises(TaskDeferred):
        execute(document, throttle="700", deferrable=True).execute(ctx)
    cluster.start(1)
    with pytest.raises(TaskDeferred):
        execute(document, throttle="700", deferrable=True).execute(ctx)
    assert cluster.broker_config[1][throttles.LEADER_RATE] == "700"


def test_a_throttle_of_a_broker_that_has_gone_away_is_ended_when_it_is_found_again(cluster: MemoryCluster) -> None:
    document = plan(plan={"partitions": [{"topic": "t", "partition": 0, "replicas": [4, 2, 3]}]})
    (leaving,) = set(document["partitions"][0]["from"]) - {4, 2, 3}
    with pytest.raises(TaskDeferred):
        execute(document, throttle="700", deferrable=True).execute(context())
    without_broker(cluster, leaving)
    run(execute(document, throttle="700"), context())
    assert cluster.broker_config[leaving][throttles.LEADER_RATE] == "700"  # nobody can reach it
    cluster.start(leaving)
    run(execute({"partitions": []}), context(run_id="another"))
    assert not throttled(cluster)


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_target_that_is_restarted_is_waited_for(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, deferrable: bool
) -> None:
    document = plan(plan={"partitions": [{"topic": "t", "partition": 0, "replicas": [2, 3, 4]}]})
    cluster.ticks_to_move, cluster.ticks_to_expire = 30, 0

    class Restarting(MemoryCluster):
        def tick(self) -> None:
            super().tick()
            if self.looks == 12 and 4 in self.running:
                self.kill(4)
            elif self.looks == 24 and 4 not in self.sessions:
                self.start(4)

    cluster.__class__ = Restarting
    result, _ = run(execute(document, throttle="5", deferrable=deferrable), context())
    assert result["moved"] == ["t-0"]
    assert cluster.started == [4]
    assert not throttled(cluster)


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_move_waits_for_a_target_that_is_away_at_the_start(cluster: MemoryCluster, deferrable: bool) -> None:
    document = plan(
        plan={"partitions": [{"topic": "t", "partition": p, "replicas": r} for p, r in ((0, [2, 3, 4]), (1, [3, 2]))]}
    )
    without_broker(cluster, 4)

    class Returning(MemoryCluster):
        def tick(self) -> None:
            super().tick()
            if self.looks == 30 and 4 not in self.sessions:
                self.start(4)

    cluster.__class__ = Returning
    result, _ = run(execute(document, deferrable=deferrable), context())
    assert result["moved"] == ["t-0", "t-1"]


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


def test_what_was_approved_is_what_is_done(cluster: MemoryCluster) -> None:
    document = plan(drain=[1], only_drained=True)
    MemoryClient(cluster).create_topic(NewTopic("u", assignment={0: (1, 2), 1: (1, 3)}))
    cluster.tick()
    with pytest.raises(WaitFailed, match="still hold replicas of u: run it again"):
        run(decommission(plan=document), context())
    assert {tp for tp, a in cluster.assignments.items() if 1 in a.replicas} == {
        TopicPartition("u", 0),
        TopicPartition("u", 1),
    }


def test_an_approved_plan_is_refused_where_replicas_have_moved_since(cluster: MemoryCluster) -> None:
    document = plan(drain=[1])
    moved = document["partitions"][0]
    tp = TopicPartition(moved["topic"], moved["partition"])
    other = next(b for b in (2, 3, 4) if b not in moved["from"])
    elsewhere = (1, other, next(b for b in moved["from"] if b != 1))
    MemoryClient(cluster).alter_reassignments({tp: elsewhere})
    for _ in range(4):
        cluster.tick()
    before = dict(cluster.assignments)
    with pytest.raises(StalePlan, match="plan again"):
        run(decommission(plan=json.dumps(document)), context())
    assert cluster.assignments == before
    with pytest.raises(BadSettings, match=r"puts replicas on brokers \[4\]"):
        run(decommission(plan=document, brokers=[4]), context())


def test_a_smaller_factor_concerns_only_the_topics_of_the_drained_broker(cluster: MemoryCluster) -> None:
    MemoryClient(cluster).create_topic(NewTopic("u", assignment={0: (2, 3, 4)}))
    cluster.tick()
    topics = {e["topic"] for e in plan(drain=[1], replication_factor=2, only_drained=True)["partitions"]}
    assert topics == {"t"}
