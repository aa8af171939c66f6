"""Every wait goes into the triggerer and comes back: made anew from JSON, ended by what the cluster does meanwhile."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")


from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.ports import AccessRefused, ClusterUnreachable
from logyard.broker.model import TopicPartition
from logyard.operators.airflow_names import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)
from logyard.operators.hooks.cluster import ClusterHook
from logyard.operators.sensors.cluster import (
    BrokerUpSensor,
    ControllerElectedSensor,
    ReassignmentDoneSensor,
    TopicReadySensor,
    UnderReplicatedPartitionsSensor,
)
from logyard.operators.sensors.offsets import ConsumerLagBelowSensor, OffsetsReachedSensor
from logyard.operators.topics import AddPartitionsOperator, DeleteTopicOperator
from logyard.operators.triggers import base as trigger_base
from logyard.operators.triggers.base import WaitFailed
from tests.support.airflow_tasks import context, first_event, run, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster

pytestmark = pytest.mark.airflow

ONE = TopicPartition("t", 0)
PLAN = {"partitions": [{"topic": "t", "partition": 0, "replicas": [2, 3]}]}
Change = Callable[[MemoryCluster], None]


class Changing(MemoryCluster):
    """A cluster that changes by itself once it was read a few times."""

    change: Change | None = None
    due = 0

    def tick(self) -> None:
        super().tick()
        change = self.change
        if change is not None and self.looks >= self.due:
            self.change = None
            change(self)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Changing:
    made = Changing({1: None, 2: None, 3: None}, ticks_to_expire=0)
    client = MemoryClient(made)
    client.create_topic(NewTopic("t", assignment={0: (1, 2)}))
    client.snapshot()
    use(monkeypatch, made)
    return made


def later(cluster: Changing, change: Change) -> None:
    cluster.due, cluster.change = cluster.looks + 3, change


def lose(cluster: MemoryCluster, broker: int) -> None:
    cluster.kill(broker)
    cluster.tick()
    cluster.tick()


def _move(cluster: MemoryCluster) -> None:
    MemoryClient(cluster).alter_reassignments({ONE: (2, 3)})


def _make(cluster: MemoryCluster) -> None:
    MemoryClient(cluster).create_topic(NewTopic("u", 1, 1))


def _write(cluster: MemoryCluster) -> None:
    cluster.end_offsets[ONE] = 5


def _commit(cluster: MemoryCluster) -> None:
    cluster.group_commits["g"] = {ONE: 0}


WAITS: list[tuple[Any, dict[str, Any], Change | None, Change, str]] = [
    (TopicReadySensor, {"topic": "u"}, None, _make, "partitions"),
    (BrokerUpSensor, {"brokers": [3]}, lambda c: lose(c, 3), lambda c: c.start(3), "brokers"),
    (UnderReplicatedPartitionsSensor, {}, lambda c: lose(c, 2), lambda c: c.start(2), "partitions"),
    (ControllerElectedSensor, {"other_than": 1}, None, lambda c: lose(c, 1), "controller"),
    (
        ReassignmentDoneSensor,
        {"plan": PLAN},
        None,
        _move,
        "done",
    ),
    (OffsetsReachedSensor, {"topic": "t", "offsets": 5}, None, _write, "offsets"),
    (ConsumerLagBelowSensor, {"group": "g"}, None, _commit, "lag"),
]


@pytest.mark.parametrize(
    ("sensor", "fields", "before", "change", "key"), WAITS, ids=lambda v: getattr(v, "__name__", "")
)
def test_a_sensor_comes_back_with_what_it_waited_for(
    cluster: Changing, sensor: Any, fields: dict[str, Any], before: Change | None, change: Change, key: str
) -> None:
    if before is not None:
        before(cluster)
    later(cluster, change)
    result, deferrals = run(sensor(task_id="s", deferrable=True, poke_interval=0.01, **fields), context())
    assert deferrals == 1
    assert key in result


@pytest.mark.parametrize(
    ("sensor", "fields", "before", "change", "key"), WAITS, ids=lambda v: getattr(v, "__name__", "")
)
def test_a_sensor_that_waited_too_long_fails_and_says_for_what(
    cluster: Changing, sensor: Any, fields: dict[str, Any], before: Change | None, change: Change, key: str
) -> None:
    if before is not None:
        before(cluster)
    operator = sensor(task_id="s", deferrable=True, poke_interval=0.01, timeout=0.0, **fields)
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(context())
    assert deferred.value.timeout is not None  # later than the trigger's own, which says more
    event = first_event(deferred.value.trigger)
    with pytest.raises(AirflowSensorTimeout, match=r"gave up waiting for .+"):
        operator.resume_execution("execute_complete", {"event": event}, context())
    operator.soft_fail = True
    with pytest.raises(AirflowSkipException):
        operator.resume_execution("execute_complete", {"event": event}, context())


def test_a_backend_of_secrets_that_is_away_ends_no_wait(cluster: Changing, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trigger that reports how far it is reads the connection for that too."""
    asked = []

    class Away(ClusterHook):
        async def asettings(self) -> Any:
            asked.append(1)
            raise RuntimeError("the backend does not answer")

    monkeypatch.setattr(trigger_base, "FIRST_REPORT_S", 0.0)
    monkeypatch.setattr(trigger_base, "REPORT_S", 0.0)
    monkeypatch.setattr(trigger_base, "ClusterHook", Away)
    later(cluster, _move)
    sensor = ReassignmentDoneSensor(task_id="s", deferrable=True, poke_interval=0.01, plan=PLAN)
    result, deferrals = run(sensor, context())
    assert (deferrals, "done" in result) == (1, True)
    assert asked


def test_a_condition_that_can_no_longer_come_true_fails_a_sensor_for_good_or_skips_it() -> None:
    event = {"status": "failed", "message": "the move of t-0 was cancelled", "values": {}}
    operator = BrokerUpSensor(task_id="s", deferrable=True, brokers=[1])
    with pytest.raises(AirflowFailException, match=r"^the move of t-0 was cancelled$"):
        operator.resume_execution("execute_complete", {"event": event}, context())
    operator.soft_fail = True
    with pytest.raises(AirflowSkipException):
        operator.resume_execution("execute_complete", {"event": event}, context())
    with pytest.raises(WaitFailed, match="no event"):
        operator.resume_execution("execute_complete", {"event": None}, context())


@pytest.mark.parametrize("deferrable", [True, False])
@pytest.mark.parametrize("kind", ["soft_fail", "never_fail"])
def test_a_sensor_that_is_set_wrong_is_skipped_where_that_is_asked(
    cluster: Changing, deferrable: bool, kind: str
) -> None:
    operator = TopicReadySensor(task_id="s", topic="t", partitions="many", deferrable=deferrable)
    with pytest.raises(AirflowFailException, match=r"partitions: expected an integer"):
        operator.execute(context())
    setattr(operator, kind, True)
    with pytest.raises(AirflowSkipException):
        operator.execute(context())


@pytest.mark.parametrize(
    ("kind", "raised"),
    [(None, ClusterUnreachable), ("never_fail", AirflowSkipException), ("silent_fail", TaskDeferred)],
)
def test_a_first_look_that_fails_ends_a_deferrable_sensor_as_a_poke_would(
    cluster: Changing, monkeypatch: pytest.MonkeyPatch, kind: str | None, raised: type[BaseException]
) -> None:
    def away(*_: object, **__: object) -> None:
        raise ClusterUnreachable("nobody answers")

    monkeypatch.setattr(MemoryClient, "snapshot", away)
    operator = TopicReadySensor(task_id="s", topic="t", deferrable=True)
    if kind is not None:
        setattr(operator, kind, True)
    with pytest.raises(raised):
        operator.execute(context())


def test_partitions_that_are_led_later_are_waited_for(cluster: Changing) -> None:
    cluster.busy = True  # nobody gives the new ones leaders

    def elect(found: MemoryCluster) -> None:
        found.busy = False

    later(cluster, elect)
    operator = AddPartitionsOperator(task_id="p", topic="t", partitions=3, deferrable=True, poll_interval_s=0.01)
    result, deferrals = run(operator, context())
    assert (deferrals, result["after"], len(result["partitions"])) == (1, 3, 3)


@pytest.mark.parametrize("refused", [False, True])
def test_a_wait_in_a_worker_survives_a_cluster_that_does_not_answer(
    cluster: Changing, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    """As one in the triggerer does; a login that is refused is not worth the wait."""
    snapshot, silent = MemoryClient.snapshot, iter([AccessRefused if refused else ClusterUnreachable] * 3)

    def at_times(client: MemoryClient, topics: Any = None, *, reassignments: bool = False) -> Any:
        if reassignments and (problem := next(silent, None)):
            raise problem("nobody answers")
        return snapshot(client, topics, reassignments=reassignments)

    monkeypatch.setattr(MemoryClient, "snapshot", at_times)
    operator = DeleteTopicOperator(task_id="d", topic="t", poll_interval_s=0.01)
    if refused:
        with pytest.raises(AccessRefused):
            operator.execute(context())
        return
    assert run(operator, context())[0]["deleted"] is True
    assert next(silent, None) is None


def test_a_deletion_that_takes_a_while_is_waited_for(cluster: Changing, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = MemoryClient.delete_topic
    monkeypatch.setattr(
        MemoryClient, "delete_topic", lambda client, *which: later(cluster, lambda c: at_once(MemoryClient(c), *which))
    )
    operator = DeleteTopicOperator(task_id="d", topic="t", deferrable=True, poll_interval_s=0.01)
    ctx = context()
    result, deferrals = run(operator, ctx)
    assert (deferrals, result["deleted"], ctx["task_state_store"]) == (1, True, {})
    assert "t" not in cluster.configs
