"""Every operator and sensor (but the Spark ones and the human's approval) on Apache Kafka, as a worker runs them."""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow")
os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="logyard-test-airflow-"))
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
# No worker process ends here, so no trigger has to wait for its heartbeat.
os.environ.setdefault("AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL", "0")

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.reassignment.planner import PlanImpossible
from logyard.operators.catalog import ApplyTopicsOperator, PlanTopicsOperator
from logyard.operators.controller import RecoverControllerOperator
from logyard.operators.decommission import DecommissionBrokerOperator
from logyard.operators.groups import ResetOffsetsOperator
from logyard.operators.leadership import ElectLeadersOperator
from logyard.operators.reassignment import ExecuteReassignmentOperator, PlanReassignmentOperator
from logyard.operators.reports import ChooseCompactionOperator, RetentionReportOperator
from logyard.operators.sensors.cluster import (
    BrokerUpSensor,
    ControllerElectedSensor,
    ReassignmentDoneSensor,
    TopicReadySensor,
    UnderReplicatedPartitionsSensor,
)
from logyard.operators.sensors.offsets import ConsumerLagBelowSensor, OffsetsReachedSensor
from logyard.operators.topics import (
    AddPartitionsOperator,
    AlterTopicOperator,
    CreateTopicOperator,
    DeleteRecordsOperator,
    DeleteTopicOperator,
)
from logyard.operators.verification import VerifyReassignmentOperator
from tests.support.airflow_tasks import Store, context, keep_throttles, run
from tests.support.real_cluster import RealCluster, eventually

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def connection(cluster: RealCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    start = "import sys, pathlib; from tests.support import kafka; "
    start += "kafka.cluster_at(pathlib.Path(sys.argv[1])).start_broker(int(sys.argv[2]))"
    extra = {
        "zookeeper": cluster.description["zookeeper"],
        "broker_ids": [0, 1, 2],
        "broker_start_command": [sys.executable, "-c", start, str(cluster.directory), "{broker_id}"],
    }
    made = {"conn_type": "logyard", "host": cluster.bootstrap, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps(made))
    keep_throttles(monkeypatch)
    monkeypatch.setenv("AIRFLOW__LOGYARD__ALLOW_CONNECTION_LAUNCHER", "True")


def result(operator: Any) -> Any:
    return run(operator, context())[0]


def unless_refused(operator: Any) -> Any:
    try:
        return result(operator)
    except ApiError as refusal:
        if "PolicyViolation" not in str(refusal):
            raise
        return None


def test_a_topics_life(cluster: RealCluster) -> None:
    given = {"partitions": 3, "replication_factor": 2, "configs": {"cleanup.policy": "compact"}}
    created = result(CreateTopicOperator(task_id="create", topic="made", deferrable=True, **given))  # type: ignore[arg-type]
    assert len(created["partitions"]) == 3
    result(TopicReadySensor(task_id="ready", topic="made", partitions=3, deferrable=True))
    result(AlterTopicOperator(task_id="alter", topic="made", configs={"retention.ms": 50000, "cleanup.policy": None}))
    more = AddPartitionsOperator(task_id="more", topic="made", partitions=5, allow_keyed=True)
    assert len(result(more)["partitions"]) == 5
    cluster.produce("made", [(str(n).encode(), b"%d" % n) for n in range(500)])
    # The leaders hear a little later that the topic is no longer compacted, and refuse until then.
    deleting = DeleteRecordsOperator(task_id="records", topic="made", before={"0": 3, "1": 4})
    assert eventually(lambda: unless_refused(deleting), "records deleted")
    report = result(RetentionReportOperator(task_id="report", topics=["made"]))
    assert report["records"] == 493
    assert result(DeleteTopicOperator(task_id="delete", topic="made"))["deleted"] is True
    eventually(lambda: "made" not in cluster.admin().list_topics(timeout=10).topics, "gone")


def test_a_topic_is_created_again_right_after_its_deletion(cluster: RealCluster) -> None:
    """Brokers forget a topic before its replicas are gone, and the controller then still has its name."""
    for number in range(5):
        create = CreateTopicOperator(task_id="create", topic="again", partitions=12, replication_factor=3)
        assert result(create)["changes"]["create"] is True, number
        assert result(DeleteTopicOperator(task_id="delete", topic="again"))["deleted"] is True, number


def test_a_retry_of_a_deletion_spares_a_topic_that_was_made_since(
    cluster: RealCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, store = DeleteTopicOperator(task_id="delete", topic="twice"), Store()

    def dies(*_: object, **__: object) -> None:
        raise SystemExit("killed")

    def has_died() -> bool:
        try:
            operator.execute(context(store))
        except SystemExit:
            return True
        return False  # by what a broker says that has not heard of the topic yet

    cluster.create("twice", 1, 2)
    with operator.hook.client() as client:

        def id_other_than(known: str | None) -> str | None:
            """Any broker may be asked, and one of them may hear of a topic after the others."""
            found = client.snapshot(["twice"]).topics.get("twice")
            return found.topic_id if found is not None and found.topic_id != known else None

        first = eventually(lambda: id_other_than(None), "the topic")
        with monkeypatch.context() as patched:
            patched.setattr(DeleteTopicOperator, "wait", dies)
            eventually(has_died, "the first try")

        def is_made_again() -> bool:
            try:
                client.create_topic(NewTopic("twice", 1, 2))
            except ApiError as refusal:
                if refusal.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # "marked for deletion"
                    raise
                return False
            return True

        eventually(is_made_again, "another topic of the name")
        made = eventually(lambda: id_other_than(first), "another one of the name")
        assert run(operator, context(store))[0]["deleted"] is True
        with pytest.raises(ApiError) as refusal:
            client.delete_topic("twice", first)
        assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_ID
        assert eventually(lambda: id_other_than(first), "the same one") == made
        client.delete_topic("twice")


def test_moves_elections_and_verification(cluster: RealCluster) -> None:
    cluster.create("moving", 4, 2)
    cluster.produce("moving", [(str(n).encode(), b"%d" % n) for n in range(500)])
    plan = result(PlanReassignmentOperator(task_id="plan", topics=["moving"], drain=[2], throttle=10_000_000))
    assert plan["partitions"]
    result(ExecuteReassignmentOperator(task_id="go", plan=plan, deferrable=True, poll_interval_s=0.2))
    result(ReassignmentDoneSensor(task_id="done", plan=plan, deferrable=True))
    result(VerifyReassignmentOperator(task_id="verify", plan=plan, poll_interval_s=0.2))
    assert all(2 not in p.replicas for p in cluster.describe("moving").values())
    result(ElectLeadersOperator(task_id="elect", topics=["moving"]))
    result(UnderReplicatedPartitionsSensor(task_id="full", topics=["moving"], deferrable=True))
    # With three replicas of something nobody can go.
    cluster.create("everywhere", 1, 3)
    with pytest.raises(PlanImpossible, match="needs 3 replicas and 2 brokers may hold them"):
        result(DecommissionBrokerOperator(task_id="away", brokers=[2], dry_run=True))


def test_groups_controller_and_brokers(cluster: RealCluster) -> None:
    cluster.create("followed", 2, 3)
    cluster.produce("followed", [(str(n).encode(), b"%d" % n) for n in range(100)])
    reset = ResetOffsetsOperator(task_id="reset", group="followers", to="latest", topics=["followed"])
    assert result(reset)
    result(ConsumerLagBelowSensor(task_id="lag", group="followers", max_lag=0, deferrable=True))
    result(OffsetsReachedSensor(task_id="reached", topic="followed", offsets={"0": 1, "1": 1}, deferrable=True))
    result(BrokerUpSensor(task_id="up", brokers=[0, 1, 2], deferrable=True))
    result(ControllerElectedSensor(task_id="controller", deferrable=True))


def test_a_dead_controller_is_recovered(cluster: RealCluster) -> None:
    assert result(RecoverControllerOperator(task_id="look", deferrable=True))["finding"] == "HEALTHY"
    cluster.create("kept", 3, 3)
    before, epoch = cluster.controller()
    cluster.cluster.stop_broker(before, signal.SIGKILL)
    found = result(RecoverControllerOperator(task_id="recover"))
    assert (found["finding"], found["controller_before"]) == ("CONTROLLER_DEAD", before)
    assert found["restarted"] == [before]
    assert cluster.controller()[1] > epoch
    eventually(lambda: cluster.isrs_full("kept"), "in sync", 60)


def test_topics_as_code(cluster: RealCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__LOGYARD__TOPICS_DIRECTORY", str(tmp_path))
    text = 'version: 1\nowns: "as-.*"\ntopics:\n  as-code: {partitions: 2, replication_factor: 2}\n'
    (tmp_path / "topics.yaml").write_text(text)
    where = {**context(), "dag": SimpleNamespace(fileloc=str(tmp_path / "dag.py"))}
    plan = run(PlanTopicsOperator(task_id="plan", file="topics.yaml"), where)[0]
    run(ApplyTopicsOperator(task_id="apply", plan=plan, file="topics.yaml"), where)
    eventually(lambda: len(cluster.describe("as-code")) == 2, "made")
    cluster.create("compacted", 1, 2, cleanup_policy="compact")
    cluster.produce("compacted", [(b"k", b"%d" % n) for n in range(100)])
    assert ["compacted"] in result(ChooseCompactionOperator(task_id="choose"))
