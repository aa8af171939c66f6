"""Reassignment from plan to verification: waves, adoption, stale plans, foreign moves, dry runs."""

import asyncio
import json
import time

import pytest

pytest.importorskip("airflow.sdk")


from logyard.admin.errors import ApiError
from logyard.admin.reassignment.disks import DiskTooFull
from logyard.admin.reassignment.planner import PlanImpossible
from logyard.admin.reassignment.throttles import settings
from logyard.admin.reassignment.waves import ForeignReassignment, MovesUnknown
from logyard.broker.model import TopicPartition
from logyard.operators import base as operator_base
from logyard.operators.airflow_names import AirflowFailException, TaskDeferred
from logyard.operators.leadership import ElectLeadersOperator
from logyard.operators.reassignment import ExecuteReassignmentOperator, StalePlan
from logyard.operators.triggers import base as trigger_base
from logyard.operators.triggers.base import DONE, WaitEvent, WaitFailed
from logyard.operators.verification import NotAsPlanned
from tests.support.airflow_tasks import Store, context, killed_in, remade, run, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.moves import decommission, execute, four_brokers, plan, throttled, verify

pytestmark = pytest.mark.airflow


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    return four_brokers(monkeypatch)


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
    assert settings.LEADERS in cluster.configs["t"]
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


def test_a_topic_that_one_broker_does_not_know_is_planned_and_moved_all_the_same(cluster: MemoryCluster) -> None:
    """It has just started, or the controller's news reach it late."""
    cluster.unheard = {"t"}
    wanted = {"partitions": [{"topic": "t", "partition": 0, "replicas": [4, 2, 3]}]}
    document = plan(plan=wanted, topics=["t"])
    result, _ = run(execute(document), context())
    assert (result["moved"], result["lost"]) == (["t-0"], [])
    assert cluster.assignments[TopicPartition("t", 0)].target == (4, 2, 3)
    assert run(verify(document), context(task_id="v"))[0]["as_planned"] == 1


def test_replicas_of_a_broker_that_one_broker_does_not_know_stay_where_they_are(cluster: MemoryCluster) -> None:
    """It came back while the one that is asked was cut off from the controller: else it would be emptied."""
    cluster.unmet = {1}
    assert plan()["partitions"] == []
    of_two = [str(tp) for tp, a in sorted(cluster.assignments.items()) if 2 in a.replicas]
    assert len(of_two) < len(cluster.assignments)
    assert len(plan(drain=[2])["partitions"]) == len(of_two)
    assert sorted(run(decommission(brokers=[2], dry_run=True), context())[0]["to_do"]) == of_two


def test_a_deferred_move_is_not_lost_where_one_broker_does_not_know_its_topic(cluster: MemoryCluster) -> None:
    wanted = {"partitions": [{"topic": "t", "partition": 0, "replicas": [4, 2, 3]}]}
    document, cluster.ticks_to_move = plan(plan=wanted), 12
    cluster.unheard = {"t"}
    result, deferrals = run(execute(document, deferrable=True), context())
    assert (result["moved"], result["lost"], deferrals) == (["t-0"], [], 1)


def test_leaders_of_a_topic_that_is_not_there_are_not_elected(cluster: MemoryCluster) -> None:
    with pytest.raises(ApiError, match="topics absent do not exist"):
        run(ElectLeadersOperator(task_id="e", topics=["t", "absent"]), context())


def test_a_topic_is_not_said_to_be_gone_where_nobody_can_tell(cluster: MemoryCluster) -> None:
    cluster.unheard, cluster.controller, cluster.electing = {"t"}, None, False
    with pytest.raises(ApiError, match="no controller"):
        run(ElectLeadersOperator(task_id="e", topics=["t"]), context())


def between_waves(cluster: MemoryCluster) -> tuple[ExecuteReassignmentOperator, TopicPartition]:
    """A plan whose first move runs, and one of its partitions that somebody has begun to move elsewhere."""
    wanted = [{"topic": "t", "partition": p, "replicas": [4, 2, 3]} for p in (0, 3)]
    document, cluster.ticks_to_move = plan(plan={"partitions": wanted}), 500
    operator = execute(document, deferrable=True, moves_per_broker=1)
    with pytest.raises(TaskDeferred):
        operator.execute(context())
    client = MemoryClient(cluster)
    (other,) = {TopicPartition("t", p) for p in (0, 3)} - set(client.list_reassignments())
    client.alter_reassignments({other: (4, 1, 2)})
    return operator, other


def test_silence_between_two_waves_does_not_mean_that_nothing_moves(cluster: MemoryCluster) -> None:
    operator, _ = between_waves(cluster)
    before, woken = dict(cluster.assignments), WaitEvent(DONE).as_json()
    assert cluster.controller is not None
    cluster.hung.add(cluster.controller)
    with pytest.raises(MovesUnknown, match="no controller tells which replicas move"):
        operator.resume(context(), woken, time.time())
    assert cluster.assignments == before
    cluster.hung.clear()
    with pytest.raises(TaskDeferred):
        operator.resume(context(), woken, time.time())
    assert cluster.assignments == before


def test_the_next_wave_waits_for_the_next_controller(cluster: MemoryCluster) -> None:
    operator, other = between_waves(cluster)
    assert cluster.controller is not None
    cluster.kill(cluster.controller)
    with pytest.raises(TaskDeferred):
        operator.resume(context(), WaitEvent(DONE).as_json(), time.time())
    assert cluster.controller in cluster.running
    assert cluster.assignments[other].target == (4, 1, 2)


def test_a_verification_without_a_controller_does_not_say_that_replicas_are_elsewhere(cluster: MemoryCluster) -> None:
    document = plan(drain=[1])
    run(execute(document), context())
    assert cluster.controller is not None
    cluster.hung.add(cluster.controller)
    with pytest.raises(MovesUnknown):
        verify(document).finish(context(task_id="v"), WaitEvent(DONE).as_json())


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
    cluster.restart(1)
    result, _ = run(ElectLeadersOperator(task_id="e", topics="[]"), context())
    assert result["elected"] == [str(tp) for tp in sorted(moved)]
    assert run(ElectLeadersOperator(task_id="e"), context())[0]["elected"] == []


def test_killing_a_deferred_task_cancels_its_moves_and_puts_the_throttle_back(cluster: MemoryCluster) -> None:
    document = plan(drain=[1])
    cluster.ticks_to_move = 500
    with pytest.raises(TaskDeferred) as deferred:
        execute(document, throttle="700", deferrable=True).execute(context())
    assert settings.LEADERS in cluster.configs["t"]
    asyncio.run(remade(deferred.value.trigger).on_kill())
    assert not any(a.is_reassigning for a in cluster.assignments.values())
    assert all(not config for config in cluster.broker_config.values())
    assert cluster.configs["t"] == {}


def test_a_throttle_is_remembered_before_it_is_set(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker dies while it sets the throttle: the next try must not take the half of it for somebody else's."""
    document, store = plan(drain=[1]), Store()
    with killed_in(monkeypatch, MemoryClient, "alter_broker_configs"):
        execute(document, throttle="700").execute(context(store))
    assert settings.LEADERS in cluster.configs["t"]
    run(execute(document, throttle="700"), context(store))
    assert all(not config for config in cluster.broker_config.values())
    assert cluster.configs["t"] == {}


def test_a_dry_run_names_the_first_wave_and_moves_nothing(cluster: MemoryCluster) -> None:
    document = plan(drain=[1])
    result, _ = run(execute(document, dry_run="True", moves_per_broker=1), context())
    assert len(result["to_do"]) == len(document["partitions"]) > len(result["first_wave"]) > 0
    assert not any(a.is_reassigning for a in cluster.assignments.values())
    would, _ = run(ElectLeadersOperator(task_id="e", dry_run=True), context())
    assert would == {"elected": [], "would_elect": [], "kind": "preferred"}


def test_a_plan_says_what_becomes_of_every_broker(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, cluster, throttle=500)
    document = plan(topics=["t"], drain=[1])
    assert [entry["broker"] for entry in document["brokers"]] == [1, 2, 3, 4]
    assert (document["brokers"][0]["bytes_after"], document["brokers"][0]["replicas_after"]) == (0, 0)
    assert document["seconds_at_throttle"] > 0  # at the connection's throttle
    with pytest.raises(AirflowFailException, match="nowhere"):
        plan(topics=["nowhere"])


def test_disks_are_minded_as_brokers_report_them(cluster: MemoryCluster) -> None:
    cluster.disks = {(broker, f"/data/{broker}"): (100_000, 90_000) for broker in (1, 2, 3, 4)}
    free = {entry["broker"]: (entry["free"], entry["verdict"]) for entry in plan(drain=[1])["disks"]}
    assert free[1] == (90_000, "fits")
    cluster.disks = {(broker, f"/data/{broker}"): (100_000, 999) for broker in (1, 2, 3, 4)}
    with pytest.raises(DiskTooFull, match="are free"):
        plan(drain=[1])
    with pytest.raises(DiskTooFull, match="are free"):
        run(decommission(brokers=[1]), context())
    assert not any(a.is_reassigning for a in cluster.assignments.values())
    plan(drain=[1], disk_capacities=10**9)  # a user knows better


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
        run(decommission(brokers=[1], disk_capacities=held), context())
    assert not any(a.is_reassigning for a in cluster.assignments.values())
    use(monkeypatch, cluster, disk_capacities={str(broker): held for broker in (1, 2, 3, 4)})
    with pytest.raises(DiskTooFull, match="are allowed"):  # the connection tells
        plan(drain=[1])
    assert plan(drain=[1], disk_capacities=50000)["partitions"]
    with pytest.raises(AirflowFailException, match="1 to 100 percent"):
        plan(disk_capacities=held, disk_limit=101)
    with pytest.raises(AirflowFailException, match="broker 4's is missing"):
        plan(disk_capacities={"1": 1, "2": 1, "3": 1})


# -- verification ------------------------------------------------------------------------------------


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
    with pytest.raises(AirflowFailException, match="it is empty"):
        run(verify("null"), context())


def test_an_execution_that_ended_well_leaves_no_throttle_to_end(cluster: MemoryCluster) -> None:
    document = plan(drain=[1])
    run(execute(document, throttle="700"), context())
    assert run(verify(document), context(task_id="v"))[0]["throttles_ended"] == 0


def test_a_verification_keeps_what_others_have_set_since(cluster: MemoryCluster) -> None:
    document = plan(drain=[1])
    with pytest.raises(TaskDeferred):
        execute(document, throttle="700", deferrable=True).execute(context())
    MemoryClient(cluster).alter_broker_configs(2, {settings.LEADER_RATE: "33"})
    run(verify(document), context(task_id="v"))
    assert cluster.broker_config[2] == {settings.LEADER_RATE: "33"}
    assert not any(cluster.broker_config[b] for b in (1, 3, 4))


@pytest.mark.parametrize("deferrable", [True, False])
def test_the_log_tells_soon_what_is_copied(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], deferrable: bool
) -> None:
    cluster.sizes = dict.fromkeys(cluster.assignments, 3 * 2**20)
    cluster.ticks_to_move = 200
    for module in (trigger_base, operator_base):
        monkeypatch.setattr(module, "FIRST_REPORT_S", 0.0)
    document = plan(plan={"partitions": [{"topic": "t", "partition": 0, "replicas": [2, 3, 4]}]})
    run(execute(document, throttle="5", deferrable=deferrable), context())
    assert capsys.readouterr().out.count("0 of 1 move in place; 3.0 MiB of 3.0 MiB copied") == 1


@pytest.mark.parametrize("deferrable", [True, False])
def test_the_log_tells_waves_bytes_and_rate(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], deferrable: bool
) -> None:
    cluster.sizes = dict.fromkeys(cluster.assignments, 3 * 2**20)
    document = plan(plan={"partitions": [{"topic": "t", "partition": 0, "replicas": [2, 3, 4]}]})
    cluster.ticks_to_move = 200
    for module in (trigger_base, operator_base):
        monkeypatch.setattr(module, "FIRST_REPORT_S", 0.05)
        monkeypatch.setattr(module, "REPORT_S", 0.05)
    run(execute(document, throttle="5", deferrable=deferrable), context())
    told = capsys.readouterr().out
    assert "0 of 1 moves done; this wave: 1 move, 3.0 MiB to copy of 3.0 MiB that are left" in told
    assert "0 of 1 move in place; 3.0 MiB of 3.0 MiB copied, 0 B per second" in told
