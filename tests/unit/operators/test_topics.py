"""Topic operators on a cluster in memory: deferred and polled, first run and second."""

from typing import Any

import pytest

pytest.importorskip("airflow.sdk")


from logyard.admin.cluster.observation import observe
from logyard.admin.cluster.snapshot import ConfigValue, GroupView, NewTopic, PartitionView, TopicView
from logyard.admin.ports import ClusterUnreachable
from logyard.admin.settings import BadSettings
from logyard.admin.topics.changes import TopicChanges
from logyard.admin.topics.difference import difference_lines
from logyard.broker.model import TopicPartition
from logyard.operators.airflow_names import AirflowFailException, TaskDeferred
from logyard.operators.topics import (
    AddPartitionsOperator,
    AlterTopicOperator,
    CreateTopicOperator,
    DeleteRecordsOperator,
    DeleteTopicOperator,
)
from logyard.operators.triggers.base import WaitFailed
from logyard.operators.triggers.cluster import TopicGoneTrigger
from tests.support.airflow_tasks import Store, context, killed_in, run, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster

pytestmark = pytest.mark.airflow


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    made = MemoryCluster({1: None, 2: None, 3: None})
    use(monkeypatch, made)
    return made


def create(**fields: Any) -> CreateTopicOperator:
    given = {"topic": "t", "partitions": "3", "replication_factor": "2", "configs": '{"cleanup.policy": "compact"}'}
    return CreateTopicOperator(**{"task_id": "create", "poll_interval_s": 0.01, **given, **fields})


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_topic_is_created_and_led(cluster: MemoryCluster, deferrable: bool) -> None:
    # Nobody leads until the controller comes: the first look after the creation finds nothing led.
    cluster.busy = True
    ctx = context()
    operator = create(deferrable=deferrable)
    if deferrable:
        with pytest.raises(TaskDeferred):
            operator.execute(ctx)
        cluster.busy = False
        result, _ = run(create(deferrable=True, if_exists="reconcile"), ctx)
    else:
        cluster.busy = False
        result, _ = run(operator, ctx)
    assert [p["leader"] for p in result["partitions"]] == [1, 2, 3]
    link = operator.operator_extra_links[0].get_link(operator, ti_key=None)
    assert link == "/plugin/logyard?conn_id=logyard_default&topic=t"


def test_a_deferral_goes_through_the_trigger_and_back(cluster: MemoryCluster) -> None:
    class Slow(MemoryCluster):
        def tick(self) -> None:
            self.zxid += 1
            if self.zxid > 103:
                super().tick()

    cluster.__class__ = Slow
    result, deferrals = run(create(deferrable=True), context())
    assert deferrals == 1
    assert result["changes"]["create"] is True
    assert all(p["leader"] > 0 for p in result["partitions"])


def test_what_comes_soon_is_not_deferred(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__LOGYARD__DEFER_AFTER_S", "5")
    cluster.busy = True

    class Slow(MemoryCluster):
        def tick(self) -> None:
            super().tick()
            self.busy = self.looks <= 4

    cluster.__class__ = Slow
    result, deferrals = run(create(deferrable=True, poll_interval_s=1.0), context())
    assert (deferrals, len(result["partitions"])) == (0, 3)
    MemoryClient(cluster).delete_topic("t")
    cluster.looks = -100
    with pytest.raises(TaskDeferred):
        create(deferrable=True, poll_interval_s=1.0).execute(context())


def test_a_second_run_finds_its_work_done(cluster: MemoryCluster) -> None:
    run(create(), context())
    result, _ = run(create(if_exists="reconcile"), context())
    assert result["changes"] == TopicChanges("t").as_json()
    with pytest.raises(AirflowFailException, match="already exists"):
        run(create(), context())
    with pytest.raises(AirflowFailException, match="if_exists"):
        run(create(if_exists="maybe"), context())


def test_empty_fields_of_a_form_are_the_brokers_defaults(cluster: MemoryCluster) -> None:
    wanted = create(partitions="None", replication_factor="", configs="{}", assignment="null").wanted()
    assert wanted == NewTopic("t", -1, -1)
    with pytest.raises(BadSettings, match="partitions"):
        create(partitions="many").wanted()


def test_alter_sets_and_unsets_and_then_has_nothing_to_do(cluster: MemoryCluster) -> None:
    run(create(), context())
    operator = AlterTopicOperator(task_id="a", topic="t", configs={"retention.ms": 5, "cleanup.policy": None})
    first, _ = run(operator, context())
    assert first["changes"]["set_configs"] == {"retention.ms": "5"}
    assert first["changes"]["delete_configs"] == ["cleanup.policy"]
    assert cluster.configs["t"] == {"retention.ms": "5"}
    second, _ = run(operator, context())
    assert (second["changes"]["set_configs"], second["changes"]["delete_configs"]) == ({}, [])


def test_partitions_are_added_never_taken(cluster: MemoryCluster) -> None:
    run(create(), context())
    with pytest.raises(AirflowFailException, match="keyed"):
        run(AddPartitionsOperator(task_id="p", topic="t", partitions=5), context())
    more = AddPartitionsOperator(task_id="p", topic="t", partitions="5", allow_keyed=True, poll_interval_s=0.01)
    result, _ = run(more, context())
    assert (result["before"], result["after"], len(result["partitions"])) == (3, 5, 5)
    assert run(more, context())[0]["before"] == 5
    with pytest.raises(AirflowFailException, match="cannot be removed"):
        run(AddPartitionsOperator(task_id="p", topic="t", partitions=2), context())


def test_delete_guards_and_is_idempotent(cluster: MemoryCluster) -> None:
    run(create(), context())
    cluster.end_offsets[TopicPartition("t", 0)] = 7
    with pytest.raises(AirflowFailException, match="7 records"):
        run(DeleteTopicOperator(task_id="d", topic="t", must_be_empty=True), context())
    with pytest.raises(AirflowFailException, match="does not match"):
        run(DeleteTopicOperator(task_id="d", topic="t", must_match="tmp-.*"), context())
    ctx = context()
    assert run(DeleteTopicOperator(task_id="d", topic="t", wanted="False"), ctx)[0]["deleted"] is False
    assert ctx["ti"].values["outcome"]["sentence"] == "Topic t stays: it was not to be deleted"
    operator = DeleteTopicOperator(task_id="d", topic="t")
    assert run(operator, context())[0]["deleted"] is True
    assert run(operator, context())[0]["deleted"] is False


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_retry_of_a_deletion_spares_a_topic_that_was_made_since(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, deferrable: bool
) -> None:
    """The first try's topic is gone when its worker dies, and somebody makes another one before the next try."""
    run(create(), context())
    operator, store = DeleteTopicOperator(task_id="d", topic="t", deferrable=deferrable), Store()
    with killed_in(monkeypatch, DeleteTopicOperator, "wait"):
        operator.execute(context(store))
    assert "t" not in cluster.configs
    run(create(partitions=1), context())
    made = MemoryClient(cluster).snapshot(["t"]).topics["t"].topic_id
    result, _ = run(operator, context(store))
    assert result["deleted"] is True
    assert MemoryClient(cluster).snapshot(["t"]).topics["t"].topic_id == made
    assert store == {}
    # Who runs it again after it has ended means the topic that there is now.
    assert run(operator, context(store))[0]["deleted"] is True
    assert ("t" in cluster.configs, store) == (False, {})


def test_a_cleared_deletion_deletes_what_is_there_now(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    run(create(), context())
    operator, store, cleared = DeleteTopicOperator(task_id="d", topic="t"), Store(), context()

    def unanswered(*_: object) -> None:
        raise ClusterUnreachable("the cluster did not answer: no answer in time")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryClient, "delete_topic", unanswered)
        with pytest.raises(ClusterUnreachable):
            operator.execute(context(store))
    MemoryClient(cluster).delete_topic("t")
    run(create(), context())
    cleared["task_state_store"], cleared["ti"].max_tries = store, 1
    assert run(operator, cleared)[0]["deleted"] is True
    assert ("t" in cluster.configs, store) == (False, {})


@pytest.mark.parametrize("with_ids", [True, False])
def test_a_deletion_goes_by_id_where_there_is_one(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, with_ids: bool
) -> None:
    """Somebody deletes the topic after this task has looked at it, and makes another one."""
    run(create(), context())
    if not with_ids:
        cluster.topic_ids.clear()

    def made_again_meanwhile(client: MemoryClient) -> list[GroupView]:
        client.delete_topic("t")
        run(create(), context())
        if not with_ids:
            cluster.topic_ids.clear()
        return []

    monkeypatch.setattr(MemoryClient, "groups", made_again_meanwhile)
    assert run(DeleteTopicOperator(task_id="d", topic="t"), context())[0]["deleted"] is True
    assert ("t" in cluster.configs) is with_ids


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_topic_that_one_broker_does_not_know_is_deleted_all_the_same(
    cluster: MemoryCluster, deferrable: bool
) -> None:
    run(create(), context())
    cluster.unheard = {"t"}
    operator = DeleteTopicOperator(task_id="d", topic="t", deferrable=deferrable, poll_interval_s=0.01)
    assert run(operator, context())[0]["deleted"] is True
    assert "t" not in cluster.configs


def test_a_topic_is_gone_when_the_controller_says_so(cluster: MemoryCluster) -> None:
    run(create(), context())
    cluster.unheard = {"t"}
    gone = TopicGoneTrigger(topic="t", logyard_conn_id="logyard_default", poll_interval_s=0.01, deadline_ms=0)
    seen = observe(MemoryClient(cluster), gone.wants())
    assert (gone.look(seen), gone.missing(seen)) == (None, "topic t to be gone")
    assert cluster.controller is not None
    cluster.hung.add(cluster.controller)  # nobody can tell
    assert gone.look(observe(MemoryClient(cluster), gone.wants())) is None
    cluster.hung.clear()
    MemoryClient(cluster).delete_topic("t")
    assert gone.look(observe(MemoryClient(cluster), gone.wants())) == {"topic": "t"}


@pytest.mark.parametrize("if_exists", ["fail", "skip", "reconcile"])
def test_a_topic_is_created_once_the_earlier_one_of_its_name_is_gone(cluster: MemoryCluster, if_exists: str) -> None:
    """The controller removes the replicas of a topic that no broker shows any more."""
    cluster.ticks_to_delete = 12
    run(create(), context())
    assert run(DeleteTopicOperator(task_id="d", topic="t"), context())[0]["deleted"] is True
    assert "t" in cluster.deleting
    result, _ = run(create(if_exists=if_exists, partitions=2), context())
    assert (result["changes"]["create"], len(result["partitions"]), cluster.deleting) == (True, 2, {})


def test_a_name_that_does_not_become_free_is_said(cluster: MemoryCluster) -> None:
    """A broker with a replica is away: only when it is back the controller can end the deletion."""
    cluster.ticks_to_delete = 10_000
    run(create(), context())
    run(DeleteTopicOperator(task_id="d", topic="t"), context())
    with pytest.raises(WaitFailed, match="gave up waiting: an earlier topic of the name t is still being deleted"):
        run(create(wait_timeout_s=0.5, poll_interval_s=0.1), context())
    with pytest.raises(WaitFailed, match="still being deleted"):
        run(create(dry_run=True), context())


def test_another_broker_that_is_behind_does_not_stop_a_creation(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It still shows the topic that was deleted."""
    run(create(), context())
    before = MemoryClient(cluster).snapshot(["t"])
    MemoryClient(cluster).delete_topic("t")
    with monkeypatch.context() as patched:
        patched.setattr(MemoryClient, "snapshot", lambda client, *asked, **how: before)
        result, _ = run(create(wait_for_leaders=False), context())
    assert result["changes"]["create"] is True
    assert "t" in cluster.configs


def test_records_are_deleted_where_no_controller_answers(cluster: MemoryCluster) -> None:
    run(create(), context())
    assert cluster.controller is not None
    cluster.hung.add(cluster.controller)
    result, _ = run(DeleteRecordsOperator(task_id="r", topic="t", before={"0": 5}), context())
    assert result["log_start_offsets"] == {"0": 5}


def test_a_topic_that_is_read_is_not_deleted(cluster: MemoryCluster) -> None:
    run(create(), context())
    cluster.group_commits["g"] = {TopicPartition("t", 0): 1}
    cluster.group_members = {"g": 1, "elsewhere": 4}
    with pytest.raises(AirflowFailException, match="read by group g"):
        run(DeleteTopicOperator(task_id="d", topic="t"), context())
    assert "t" in cluster.configs
    cluster.group_members["g"] = 0
    assert run(DeleteTopicOperator(task_id="d", topic="t", dry_run="False"), context())[0]["deleted"] is True


def test_reconciling_shows_the_difference_and_does_what_can_be_done(cluster: MemoryCluster) -> None:
    run(create(partitions=5), context())
    wanted = {"partitions": "3", "replication_factor": "3", "configs": {"retention.ms": 7}, "if_exists": "reconcile"}
    would, _ = run(create(dry_run=True, **wanted), context())
    assert would["changes"]["set_configs"] == {"retention.ms": "7"}
    assert "retention.ms" not in cluster.configs["t"]
    with pytest.raises(AirflowFailException, match="partitions: 5 cannot become 3"):
        run(create(**wanted), context())
    assert cluster.configs["t"]["retention.ms"] == "7"
    result, _ = run(create(allow_differences=True, **wanted), context())
    assert len(result["changes"]["refused"]) == 2
    assert result["changes"]["set_configs"] == {}


def test_differences_are_told_as_lines() -> None:
    found = TopicView("t", (PartitionView(0, 1, (1,), (1,)),))
    configs = {
        "retention.ms": ConfigValue("5", "DYNAMIC_TOPIC_CONFIG"),
        "segment.ms": ConfigValue("9", "DEFAULT_CONFIG"),
        "token": ConfigValue("secret", "DYNAMIC_TOPIC_CONFIG", sensitive=True),
    }
    changes = TopicChanges("t", None, 4, {"segment.ms": "1", "token": "new"}, ["retention.ms"], ["replicas: no"])
    assert difference_lines(changes, found, configs) == [
        "~ partitions: - 1 + 4",
        "~ segment.ms: - 9 (inherited) + 1",
        "~ token: - (hidden) + (hidden)",
        "- retention.ms: 5",
        "! replicas: no",
    ]
    made = TopicChanges("t", NewTopic("t", 3, -1, {"a": "b"}))
    assert difference_lines(made, None) == ["+ partitions: 3", "+ replication factor: the default", "+ a: b"]
    assert difference_lines(TopicChanges("t", NewTopic("t", assignment={0: (1, 2)})), None) == ["+ partition 0: [1, 2]"]


def test_a_dry_run_does_nothing(cluster: MemoryCluster) -> None:
    run(create(dry_run=True), context())
    assert cluster.configs == {}
    run(create(), context())
    run(DeleteTopicOperator(task_id="d", topic="t", dry_run=True), context())
    assert "t" in cluster.configs


def test_records_are_deleted_forward_only(cluster: MemoryCluster) -> None:
    run(create(), context())
    MemoryClient(cluster).delete_records({TopicPartition("t", 0): 5})
    operator = DeleteRecordsOperator(task_id="r", topic="t", before='{"0": 3, "1": 4}')
    asked, _ = run(DeleteRecordsOperator(task_id="r", topic="t", before={"1": 4}, dry_run=True), context())
    assert (asked["log_start_offsets"], asked["records"]) == ({"1": 4}, 4)
    result, _ = run(operator, context())
    assert (result["log_start_offsets"], result["records"]) == ({"0": 5, "1": 4}, 4)
    ctx = context()
    again, _ = run(operator, ctx)
    assert again == result | {"records": 0}
    assert ctx["ti"].values["outcome"]["sentence"] == "Topic t: 0 records of 2 partitions deleted"


def test_a_retry_deletes_no_records_of_a_topic_that_was_made_since(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of the first try was lost, and the offsets that it was given mean nothing in another topic."""
    run(create(), context())
    operator, store, cleared = DeleteRecordsOperator(task_id="r", topic="t", before={"0": 3}), Store(), context()

    def unanswered(*_: object) -> None:
        raise ClusterUnreachable("the cluster did not answer: no answer in time")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryClient, "delete_records", unanswered)
        with pytest.raises(ClusterUnreachable):
            operator.execute(context(store))
    MemoryClient(cluster).delete_topic("t")
    run(create(), context())
    with pytest.raises(AirflowFailException, match="made anew since the first try: no records are deleted"):
        run(operator, context(store))
    assert cluster.start_offsets == {}
    cleared["task_state_store"], cleared["ti"].max_tries = store, 1
    assert (run(operator, cleared)[0]["records"], store) == (3, {})


def test_nothing_is_asked_where_no_records_are_to_be_deleted() -> None:
    ctx = context()
    result, _ = run(DeleteRecordsOperator(task_id="r", topic="t", before="{}"), ctx)
    assert result == {"topic": "t", "log_start_offsets": {}, "records": 0}
    assert ctx["ti"].values["outcome"]["sentence"] == "Topic t: no records were to be deleted"
