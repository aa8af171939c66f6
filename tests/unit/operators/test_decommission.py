"""Taking brokers out of service: they are emptied as was approved, and stopped."""

import json
from functools import partial
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")


from logyard.admin.cluster.snapshot import DirectorySpace, LogDirs, NewTopic, ReplicaSize
from logyard.admin.reassignment.planner import PlanImpossible
from logyard.broker.model import TopicPartition
from logyard.operators.airflow_names import AirflowFailException, TaskDeferred
from logyard.operators.reassignment import StalePlan
from logyard.operators.triggers.base import WaitFailed
from tests.support.airflow_tasks import Store, context, first_event, killed_in, run
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.moves import decommission, four_brokers, plan, without_broker

pytestmark = pytest.mark.airflow


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    return four_brokers(monkeypatch)


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
    assert (cluster.stopped, "logyard_decommission_plan" in store) == ([1], False)
    assert all(not config for config in cluster.broker_config.values())


def with_new_topic(cluster: MemoryCluster) -> None:
    """All brokers but the controller's lack it."""
    MemoryClient(cluster).create_topic(NewTopic("new", assignment={0: (1, 2)}))
    cluster.tick()
    cluster.unheard = {"new"}


@pytest.mark.parametrize("topics", [None, ["t", "new"]])
def test_a_plan_has_what_one_broker_has_not_heard_of(cluster: MemoryCluster, topics: Any) -> None:
    before = MemoryClient(cluster).snapshot().topics["t"]
    MemoryClient(cluster).add_partitions("t", 7)
    with_new_topic(cluster)
    cluster.outdated = {"t": before}
    on_one = {str(tp) for tp, of in cluster.assignments.items() if 1 in of.replicas}
    moved = plan(drain="[1]", topics=topics)["partitions"]
    assert {f"{one['topic']}-{one['partition']}" for one in moved} >= on_one > {"new-0"}


def test_a_broker_is_emptied_of_what_another_has_not_heard_of(cluster: MemoryCluster) -> None:
    with_new_topic(cluster)
    result, _ = run(decommission(), context())
    assert result["empty"] is True
    assert all(1 not in a.replicas for a in cluster.assignments.values())


def test_a_decommission_that_is_tried_again_adopts_its_own_moves(cluster: MemoryCluster) -> None:
    store = Store()
    with pytest.raises(TaskDeferred):
        decommission(deferrable=True).execute(context(store))
    assert any(a.is_reassigning for a in cluster.assignments.values())
    result, _ = run(decommission(), context(store))  # another worker: moves under way are its own, not somebody's
    assert result["empty"] is True
    again, _ = run(decommission(), context())
    assert (again["moved"], again["empty"]) == ([], True)


def cleared(store: Store) -> Any:
    made = context(store)
    made["ti"].max_tries = 1
    return made


def test_a_cleared_decommission_plans_anew(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It died weeks ago before its first wave, and replicas were moved since."""
    store = Store()
    with killed_in(monkeypatch, MemoryClient, "alter_reassignments"):
        decommission().execute(context(store))
    moved = store["logyard_decommission_plan"]["plan"]["partitions"][0]
    other = next(b for b in (2, 3, 4) if b not in moved["from"])
    elsewhere = (1, other, next(b for b in moved["from"] if b != 1))
    MemoryClient(cluster).alter_reassignments({TopicPartition(moved["topic"], moved["partition"]): elsewhere})
    for _ in range(4):
        cluster.tick()
    with pytest.raises(StalePlan):
        run(decommission(), context(store))  # a retry goes on with the plan of its first try
    assert run(decommission(), cleared(store))[0]["empty"] is True
    assert "logyard_decommission_plan" not in store


def test_a_cleared_decommission_goes_on_with_its_moves_that_still_run(cluster: MemoryCluster) -> None:
    store, cluster.ticks_to_move = Store(), 30
    with pytest.raises(TaskDeferred):
        decommission(deferrable=True).execute(context(store))
    running = {str(tp) for tp, a in cluster.assignments.items() if a.is_reassigning}
    result, _ = run(decommission(), cleared(store))
    assert result["empty"] is True
    assert running <= set(result["moved"])


def test_a_deferred_decommission_goes_on_with_its_plan_where_airflow_keeps_no_state(cluster: MemoryCluster) -> None:
    """Before 3.3. Each part of the task is an operator of its own, which knows what the deferral carries."""
    without = {**context(), "task_state_store": None}
    held = {str(tp) for tp, a in cluster.assignments.items() if 1 in a.replicas}
    call: Any = decommission(deferrable=True, moves_per_broker=1).execute
    deferrals: list[TaskDeferred] = []
    while len(deferrals) < 20:
        try:
            result = call(without)
            break
        except TaskDeferred as deferral:
            deferrals.append(deferral)
            arguments = {"event": first_event(deferral.trigger), **json.loads(json.dumps(deferral.kwargs))}
            part = decommission(deferrable=True, moves_per_broker=1)
            call = partial(part.resume_execution, deferral.method_name, arguments)
    assert len(deferrals) > 1
    assert (result["empty"], set(result["moved"])) == (True, held)


def test_a_decommission_that_leaves_too_few_needs_a_smaller_factor(cluster: MemoryCluster) -> None:
    with pytest.raises(PlanImpossible, match="smaller replication factor"):
        run(decommission(brokers=[1, 2]), context())
    assert run(decommission(brokers=[1, 2], dry_run=True, replication_factor="2"), context())[0]["to_do"]
    assert run(decommission(brokers=[1, 2], replication_factor="2"), context())[0]["empty"] is True
    with pytest.raises(AirflowFailException, match="at least one"):
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


def test_a_topic_that_one_broker_does_not_know_keeps_its_broker(cluster: MemoryCluster) -> None:
    document = plan(drain="[1]")
    with_new_topic(cluster)
    with pytest.raises(WaitFailed, match="still hold replicas of new: run it again"):
        run(decommission(plan=document), context())


def test_a_broker_that_nobody_knows_is_not_said_to_be_empty(cluster: MemoryCluster) -> None:
    for dry_run in (True, False):
        with pytest.raises(AirflowFailException, match=r"brokers \[9\] are not registered and have no replicas: are"):
            run(decommission(brokers=[1, 9], dry_run=dry_run), context())
    assert any(1 in a.replicas for a in cluster.assignments.values()), "nothing was moved"
    result, _ = run(decommission(brokers=[1, 9], ignore_if_unknown="True"), context())
    assert (result["brokers"], result["empty"]) == ([1, 9], True)


def test_a_broker_that_one_broker_does_not_know_is_known(cluster: MemoryCluster) -> None:
    assert run(decommission(), context())[0]["empty"] is True
    cluster.unmet = {1}
    assert run(decommission(), context())[0]["moved"] == []


def test_a_broker_that_was_emptied_and_shut_down_is_known_to_its_task(cluster: MemoryCluster) -> None:
    store, document = Store(), plan(drain=[1])
    assert run(decommission(), context(store))[0]["empty"] is True
    without_broker(cluster, 1)
    for made in (context(store), cleared(store)):
        result, _ = run(decommission(), made)
        assert (result["moved"], result["empty"]) == ([], True)
    assert run(decommission(plan=document), context())[0]["empty"] is True, "its plan tells"
    with pytest.raises(AirflowFailException, match=r"brokers \[1\] are not registered"):
        run(decommission(), context())
    cluster.cluster_id = "another"
    with pytest.raises(AirflowFailException, match=r"brokers \[1\] are not registered"):
        run(decommission(), context(store))


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
    with pytest.raises(AirflowFailException, match=r"puts replicas on brokers \[4\]"):
        run(decommission(plan=document, brokers=[4]), context())


def test_a_smaller_factor_concerns_only_the_topics_of_the_drained_broker(cluster: MemoryCluster) -> None:
    MemoryClient(cluster).create_topic(NewTopic("u", assignment={0: (2, 3, 4)}))
    cluster.tick()
    topics = {e["topic"] for e in plan(drain=[1], replication_factor=2, only_drained=True)["partitions"]}
    assert topics == {"t"}


def test_a_broker_that_has_replicas_on_its_disks_is_not_stopped(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata does not name topics that its reader may not see."""
    monkeypatch.setenv("AIRFLOW__LOGYARD__BROKER_START_COMMAND", '["it", "{broker_id}"]')
    monkeypatch.setenv("AIRFLOW__LOGYARD__BROKER_STOP_COMMAND", '["it", "{broker_id}"]')
    unseen = ReplicaSize(1, "/data", TopicPartition("secret", 0), 5)
    monkeypatch.setattr(MemoryClient, "replica_sizes", lambda *_: [unseen])
    with pytest.raises(WaitFailed, match="broker 1 has replicas of secret on its disks: not stopped"):
        run(decommission(stop_brokers=True, poll_interval_s=40), context())
    assert cluster.stopped == []


def test_a_broker_that_cannot_tell_what_its_disk_holds_is_not_stopped(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__LOGYARD__BROKER_START_COMMAND", '["it", "{broker_id}"]')
    monkeypatch.setenv("AIRFLOW__LOGYARD__BROKER_STOP_COMMAND", '["it", "{broker_id}"]')
    lost = LogDirs(directories=(DirectorySpace(1, "/data/1"), DirectorySpace(1, "/data/2", is_online=False)))
    told = MemoryClient.log_dirs
    monkeypatch.setattr(
        MemoryClient, "log_dirs", lambda client, brokers=None: lost if brokers == [1] else told(client, brokers)
    )
    with pytest.raises(WaitFailed, match="broker 1 cannot tell what is in /data/2, which is offline: not stopped"):
        run(decommission(stop_brokers=True, poll_interval_s=40), context())
    assert cluster.stopped == []
