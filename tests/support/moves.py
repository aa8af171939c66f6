"""Operators on moves over a cluster of four brokers in memory: a plan, its execution, what they leave."""

from typing import Any

import pytest

from logyard.admin.cluster.snapshot import NewTopic
from logyard.operators.decommission import DecommissionBrokerOperator
from logyard.operators.reassignment import ExecuteReassignmentOperator, PlanReassignmentOperator
from logyard.operators.verification import VerifyReassignmentOperator
from tests.support.airflow_tasks import context, run, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster


def four_brokers(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    """Topic `t`: six partitions, three replicas each, 1000 bytes."""
    made = MemoryCluster({1: None, 2: None, 3: None, 4: None})
    client = MemoryClient(made)
    client.create_topic(NewTopic("t", 6, 3))
    client.snapshot()
    made.sizes = dict.fromkeys(made.assignments, 1000)
    use(monkeypatch, made)
    return made


def plan(**goals: Any) -> dict[str, Any]:
    document: dict[str, Any] = run(PlanReassignmentOperator(task_id="plan", **goals), context())[0]
    return document


def execute(document: Any, **fields: Any) -> ExecuteReassignmentOperator:
    return ExecuteReassignmentOperator(task_id="go", plan=document, **{"poll_interval_s": 0.01, **fields})


def verify(document: Any, **fields: Any) -> VerifyReassignmentOperator:
    return VerifyReassignmentOperator(task_id="v", plan=document, **{"poll_interval_s": 0.01, **fields})


def decommission(**fields: Any) -> DecommissionBrokerOperator:
    return DecommissionBrokerOperator(task_id="d", **{"brokers": "[1]", "poll_interval_s": 0.01, **fields})


def throttled(cluster: MemoryCluster) -> bool:
    return any(cluster.broker_config.values()) or any(cluster.configs.values())


def without_broker(cluster: MemoryCluster, broker: int) -> None:
    cluster.ticks_to_expire = 0
    cluster.kill(broker)
    for _ in range(3):
        cluster.tick()
    assert broker not in cluster.sessions
