"""What a group has left to read, as the sensor of lag counts it."""

from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.told_offsets import ToldOffsets
from logyard.admin.ports import LATEST
from logyard.broker.model import TopicPartition
from logyard.operators.sensors.offsets import ConsumerLagBelowSensor
from logyard.operators.triggers.offsets import ConsumerLagBelowTrigger
from tests.support.airflow_tasks import context, first_event, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.three_brokers import look, with_topic

pytestmark = pytest.mark.airflow

WAITING: dict[str, Any] = {"logyard_conn_id": "logyard_default", "poll_interval_s": 0.01, "deadline_ms": 0}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    made = with_topic()
    made.end_offsets = {TopicPartition("t", 0): 10, TopicPartition("t", 1): 20}
    use(monkeypatch, made)
    return made


@pytest.mark.parametrize("topics", [None, ["t"]])
def test_records_that_retention_deleted_are_not_waited_for(cluster: MemoryCluster, topics: list[str] | None) -> None:
    """Nobody can read them, so a lag that has them may never become smaller."""
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    cluster.group_commits["g"] = {t0: 3, t1: 20}
    cluster.start_offsets = {t0: 10, t1: 15}
    found = ConsumerLagBelowSensor(task_id="s", group="g", topics=topics).poke(context())
    assert found.xcom_value == {"group": "g", "lag": 0, "partitions": {"t-0": 0, "t-1": 0}}
    cluster.start_offsets[t0] = 8
    found = ConsumerLagBelowSensor(task_id="s", group="g", topics=topics, max_lag=2).poke(context())
    assert found.xcom_value == {"group": "g", "lag": 2, "partitions": {"t-0": 2, "t-1": 0}}
    assert not ConsumerLagBelowSensor(task_id="s", group="g", topics=topics, max_lag=1).poke(context())


def test_a_partition_without_a_commit_counts_from_its_first_record(cluster: MemoryCluster) -> None:
    cluster.group_commits["g"] = {TopicPartition("t", 0): 10}
    cluster.start_offsets = {TopicPartition("t", 1): 15}
    found = ConsumerLagBelowSensor(task_id="s", group="g", topics=["t"], max_lag=5).poke(context())
    assert found.xcom_value == {"group": "g", "lag": 5, "partitions": {"t-0": 0, "t-1": 5}}


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_commit_beyond_the_end_is_told(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str], deferrable: bool
) -> None:
    """Nothing is left to read, and yet it is not well: `kafka-consumer-groups` shows a lag below 0."""
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    cluster.group_commits["g"] = {t0: 13, t1: 15}
    cluster.start_offsets = {t1: 0}
    trigger = ConsumerLagBelowTrigger(group="g", topics=None, max_lag=4, **WAITING)
    said = trigger.missing(look(cluster, trigger.wants()))
    assert said.startswith(
        "group g to catch up: 5 records behind, 4 allowed; commits are beyond the end of the log (t-0"
    )
    sensor = ConsumerLagBelowSensor(
        task_id="s", group="g", max_lag=5, topics=["t"], deferrable=deferrable, poke_interval=0.01
    )
    found: Any
    if deferrable:
        found = sensor.execute_complete(context(), first_event(sensor.trigger(**WAITING)))
    else:
        found = sensor.poke(context()).xcom_value
    assert found == {"group": "g", "lag": 5, "partitions": {"t-0": 0, "t-1": 5}, "beyond_end": {"t-0": 3}}
    assert "group g: commits are beyond the end of the log (t-0 by 3)" in capsys.readouterr().out


def test_a_lag_whose_first_offsets_are_not_told_is_unknown(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = MemoryClient.told_offsets

    def only_ends(self: MemoryClient, leaders: Mapping[TopicPartition, int], timestamp: int = LATEST) -> ToldOffsets:
        return told(self, leaders, timestamp) if timestamp == LATEST else ToldOffsets({}, dict.fromkeys(leaders, "no"))

    monkeypatch.setattr(MemoryClient, "told_offsets", only_ends)
    cluster.group_commits["g"] = {TopicPartition("t", 0): 9}
    trigger = ConsumerLagBelowTrigger(group="g", topics=None, max_lag=1000, **WAITING)
    seen = look(cluster, trigger.wants())
    assert trigger.look(seen) is None
    assert "to be known (no)" in trigger.missing(seen)
