"""Waits by one broker's word, or over looks of which nobody has answered."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.observation import EVERY_TOPIC, Wanted
from logyard.admin.ports import ClusterUnreachable
from logyard.operators.sensors.cluster import UnderReplicatedPartitionsSensor
from logyard.operators.triggers import base
from logyard.operators.triggers.cluster import BrokersUpTrigger, FullyReplicatedTrigger
from logyard.operators.triggers.watch import ClusterWatch
from tests.support.airflow_tasks import context, use
from tests.support.memory_cluster import MemoryCluster
from tests.support.three_brokers import look, with_topic

pytestmark = pytest.mark.airflow

WAITING: dict[str, Any] = {"logyard_conn_id": "logyard_default", "poll_interval_s": 0.01, "deadline_ms": 1 << 50}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    made = with_topic()
    use(monkeypatch, made)
    return made


def test_a_look_without_an_answer_interrupts_the_seconds(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was meanwhile nobody knows: all brokers may have been down."""
    now = 0.0
    monkeypatch.setattr("logyard.operators.triggers.cluster.monotonic", lambda: now)
    sensor = UnderReplicatedPartitionsSensor(task_id="s", hold_s=2.0)

    def poke(at: float) -> bool:
        nonlocal now
        now = at
        return bool(sensor.poke(context()))

    assert not poke(1.0)
    running, cluster.running = cluster.running, set()
    with pytest.raises(ClusterUnreachable):
        poke(2.0)
    cluster.running = running
    assert not poke(3.5)
    assert poke(5.5)


async def test_so_it_does_in_the_triggerer(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    whole = look(cluster, Wanted(ready=frozenset({EVERY_TOPIC})))
    answers = [(1.0, whole), (2.0, ClusterUnreachable("no broker answered")), (3.5, whole), (5.5, whole)]

    async def next_look(interval_s: float, wants: Wanted) -> Any:
        nonlocal now
        now, found = answers.pop(0)
        return found

    monkeypatch.setattr("logyard.operators.triggers.cluster.monotonic", lambda: now)
    monkeypatch.setattr(base, "settle_s", lambda: 0.0)
    monkeypatch.setattr(ClusterWatch, "of", lambda conn_id: SimpleNamespace(next_look=next_look))
    event = await anext(FullyReplicatedTrigger(topics=None, hold_s=2.0, **WAITING).run())
    assert (event.payload["status"], now) == ("done", 5.5)


def test_a_broker_is_up_if_the_controller_says_so_too(cluster: MemoryCluster) -> None:
    trigger = BrokersUpTrigger(brokers=[2, 3], **WAITING)
    before = look(cluster, trigger.wants())
    assert trigger.look(before) == {"brokers": [1, 2, 3]}
    cluster.kill(3)
    for _ in range(4):
        cluster.tick()
    now = look(cluster, trigger.wants())
    assert trigger.look(now) is None
    assert trigger.missing(now) == "brokers 3"
    behind = replace(now, snapshot=before.snapshot)  # by a broker that has not heard of it
    assert trigger.look(behind) is None
    assert trigger.missing(behind) == "the controller to tell that brokers 2, 3 are up"
    assert trigger.look(replace(before, registered=None)) is None, "nobody can tell now"
