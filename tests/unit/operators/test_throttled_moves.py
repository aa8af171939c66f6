"""Moves under a throttle that is left, shared, not wanted; moves of brokers that are away."""

import asyncio

import pytest

pytest.importorskip("airflow.sdk")


from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.ports import AccessRefused, ClusterUnreachable
from logyard.admin.reassignment.plan import StalePlan
from logyard.admin.reassignment.throttles import settings
from logyard.broker.model import Assignment, TopicPartition
from logyard.operators.airflow_names import AirflowFailException, TaskDeferred
from logyard.operators.cancellation import CancelReassignmentOperator
from logyard.operators.triggers.base import WaitFailed
from logyard.operators.verification import NotAsPlanned
from tests.support.airflow_tasks import context, remade, run, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.memory_records import MemoryRecords
from tests.support.moves import decommission, execute, four_brokers, plan, throttled, verify, without_broker

pytestmark = pytest.mark.airflow


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    return four_brokers(monkeypatch)


def test_a_wave_that_is_refused_ends_its_throttle(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    document = plan(drain=[1])
    refusal = ApiError(ErrorCode.POLICY_VIOLATION, "not today")
    monkeypatch.setattr(MemoryClient, "alter_reassignments", lambda _, targets: dict.fromkeys(targets, refusal))
    with pytest.raises(AirflowFailException, match="not today"):
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
    MemoryClient(cluster).alter_broker_configs(2, {settings.LEADER_RATE: "9", settings.FOLLOWER_RATE: "9"})
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
    assert cluster.broker_config[2][settings.LEADER_RATE] == "800"
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
    assert cluster.broker_config.get(1, {}).get(settings.LEADER_RATE) == rate


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
    assert cluster.broker_config[1][settings.LEADER_RATE] == "700"


def test_a_throttle_of_a_broker_that_has_gone_away_is_ended_when_it_is_found_again(cluster: MemoryCluster) -> None:
    document = plan(plan={"partitions": [{"topic": "t", "partition": 0, "replicas": [4, 2, 3]}]})
    (leaving,) = set(document["partitions"][0]["from"]) - {4, 2, 3}
    with pytest.raises(TaskDeferred):
        execute(document, throttle="700", deferrable=True).execute(context())
    without_broker(cluster, leaving)
    run(execute(document, throttle="700"), context())
    assert cluster.broker_config[leaving][settings.LEADER_RATE] == "700"  # nobody can reach it
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


@pytest.mark.parametrize(
    ("problem", "raised"),
    [
        (ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you"), AirflowFailException),
        (AccessRefused("the login is refused"), AccessRefused),
    ],
)
def test_a_broker_that_refuses_to_tell_its_settings_is_not_away(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, problem: Exception, raised: type[Exception]
) -> None:
    def refuse(*_: object) -> None:
        raise problem

    document = plan(drain=[1])
    monkeypatch.setattr(MemoryClient, "broker_configs", refuse)
    with pytest.raises(raised, match=str(problem)):
        run(execute(document, throttle="700"), context())
    assert not any(placed.is_reassigning for placed in cluster.assignments.values())


def test_a_verification_leaves_the_throttle_of_a_task_of_its_run_that_still_works(cluster: MemoryCluster) -> None:
    cluster.ticks_to_move = 5000
    plans = [{"partitions": [{"topic": "t", "partition": p, "replicas": [4, 2, 3]}]} for p in (0, 2)]
    with pytest.raises(TaskDeferred):
        execute(plans[1], throttle="700", deferrable=True).execute(context(task_id="other"))
    beside = context(task_id="v")
    beside["ti"].others = {"dag": {"run": {"other": "deferred"}}}
    with pytest.raises(NotAsPlanned):
        run(verify(plans[0]), beside)
    assert throttled(cluster)
    beside["ti"].others = {"dag": {"run": {"other": "failed"}}}
    with pytest.raises(NotAsPlanned):
        run(verify(plans[0]), beside)
    assert not throttled(cluster)


@pytest.mark.parametrize(("state", "stays"), [("failed", False), ("up_for_retry", True)])
def test_moves_of_a_dead_run_that_are_cancelled_leave_no_throttle(
    cluster: MemoryCluster, state: str, stays: bool
) -> None:
    cluster.ticks_to_move = 5000
    with pytest.raises(TaskDeferred):
        execute(plan(drain=[1]), throttle="700", deferrable=True).execute(context())
    after = context(run_id="cancellation")
    after["ti"].others = {"dag": {"run": {"go": state}}}
    run(CancelReassignmentOperator(task_id="c"), after)
    assert not any(placed.is_reassigning for placed in cluster.assignments.values())
    assert throttled(cluster) is stays


def test_records_that_cannot_be_read_do_not_hide_why_a_task_failed(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(_: object) -> None:
        raise RuntimeError("Airflow's server is away")

    document = plan(drain=[1])
    cluster.assignments = dict.fromkeys(cluster.assignments, Assignment((1,)))
    monkeypatch.setattr(MemoryRecords, "load", down)
    with pytest.raises(StalePlan):
        run(execute(document, throttle="700"), context())


@pytest.mark.parametrize("deferred", [True, False])
@pytest.mark.parametrize("why", ["refused", "leaderless"])
def test_a_killed_task_keeps_the_throttle_of_moves_that_go_on(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, why: str, deferred: bool
) -> None:
    cluster.ticks_to_move, cluster.ticks_to_expire = 5000, 0
    MemoryClient(cluster).create_topic(NewTopic("u", assignment={0: (1,)}))
    document = {"partitions": [{"topic": "u", "partition": 0, "replicas": [4]}]}
    operator = execute(document, throttle="700", deferrable=True)
    with pytest.raises(TaskDeferred) as waiting:
        operator.execute(context())
    if why == "leaderless":
        cluster.kill(1)
    else:
        refusal = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not any more")
        monkeypatch.setattr(MemoryClient, "alter_reassignments", lambda _, targets: dict.fromkeys(targets, refusal))
    if deferred:
        asyncio.run(remade(waiting.value.trigger).on_kill())
    else:
        operator.on_kill()
    assert any(placed.is_reassigning for placed in cluster.assignments.values())
    assert throttled(cluster)


def test_a_broker_that_one_broker_does_not_know_is_throttled_and_freed(cluster: MemoryCluster) -> None:
    """It is back, and only the controller's broker knows."""
    document = plan(drain=[1])
    target = document["partitions"][0]["replicas"][0]
    cluster.ticks_to_move = 5000
    with pytest.raises(TaskDeferred):
        execute(document, throttle="700", deferrable=True).execute(context())
    assert all(cluster.broker_config[broker] for broker in (1, target))
    client = MemoryClient(cluster)
    client.alter_reassignments(dict.fromkeys(client.list_reassignments()))
    cluster.unmet = {target}
    with pytest.raises(NotAsPlanned):
        run(verify(document), context(task_id="v"))
    assert not throttled(cluster)


def test_a_move_is_throttled_on_brokers_that_one_broker_does_not_know(cluster: MemoryCluster) -> None:
    document = plan(drain=[1])
    cluster.unmet, cluster.ticks_to_move = {2}, 5000
    with pytest.raises(TaskDeferred):
        execute(document, throttle="700", deferrable=True).execute(context())
    assert cluster.broker_config[2]


def test_a_cancellation_frees_brokers_that_one_broker_does_not_know(cluster: MemoryCluster) -> None:
    client = MemoryClient(cluster)
    placed = next(a.replicas for tp, a in sorted(cluster.assignments.items()) if tp.partition == 0)
    added = next(broker for broker in (1, 2, 3, 4) if broker not in placed)
    cluster.ticks_to_move = 5000
    client.alter_reassignments({TopicPartition("t", 0): (added, *placed[1:])})
    client.alter_broker_configs(added, {settings.FOLLOWER_RATE: "5"})
    cluster.unmet = {added}
    run(CancelReassignmentOperator(task_id="c"), context())
    assert not throttled(cluster)
