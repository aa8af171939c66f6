"""The recovery operator, the sensors, the shared watch, the connection and the provider's description."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.memory import MemoryClient
from logyard.admin.memory_cluster import MemoryCluster
from logyard.admin.ports import EnsembleUnreachable
from logyard.admin.settings import BadSettings
from logyard.admin.snapshot import NewTopic
from logyard.operators.controller import RecoverControllerOperator
from logyard.operators.hooks.cluster import ClusterHook
from logyard.operators.provider_info import get_provider_info
from logyard.operators.sensors.cluster import (
    BrokerUpSensor,
    ControllerElectedSensor,
    TopicReadySensor,
    UnderReplicatedPartitionsSensor,
)
from logyard.operators.triggers.base import WaitEvent, WaitFailed
from logyard.operators.triggers.cluster import ControllerElectedTrigger, TopicReadyTrigger
from logyard.operators.triggers.watch import ClusterWatch
from tests.support.airflow_tasks import context, first_event, run, use

pytestmark = pytest.mark.airflow


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    made = MemoryCluster({1: None, 2: None, 3: None})
    client = MemoryClient(made)
    client.create_topic(NewTopic("t", 6, 3))
    client.snapshot()
    use(monkeypatch, made, zookeeper="memory:2", broker_start_command=["start", "{broker_id}"])
    return made


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_dead_controller_is_recovered_with_a_typed_result(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, deferrable: bool
) -> None:
    monkeypatch.setenv("AIRFLOW__LOGYARD__BROKER_START_COMMAND", '["start", "{broker_id}"]')
    dead, epoch = cluster.controller, cluster.epoch
    assert dead is not None
    cluster.kill(dead)
    operator = RecoverControllerOperator(
        task_id="r",
        epoch_before=str(epoch),
        controller_before="None",
        restart_brokers="True",
        deferrable=deferrable,
        poll_interval_s=0.01,
    )
    result, deferrals = run(operator, context())
    assert bool(deferrals) is deferrable
    assert result["controller_before"] == dead
    assert result["controller_after"] not in (None, dead)
    assert (result["epoch_before"], result["epoch_after"]) == (epoch, epoch + 1)
    assert result["restarted"] == [dead]
    assert (result["partitions_led"], result["under_replicated"]) == (6, 0)
    assert result["seconds"] >= 0


def test_a_dry_run_only_says_what_is_wrong(cluster: MemoryCluster) -> None:
    dead = cluster.controller
    assert dead is not None
    cluster.kill(dead)
    result, _ = run(RecoverControllerOperator(task_id="r", dry_run="True", deferrable=True), context())
    assert (result["finding"], result["actions"], cluster.started) == ("CONTROLLER_DEAD", [], [])


def test_a_hung_controller_is_recovered_round_by_round(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("START", "STOP"):
        monkeypatch.setenv(f"AIRFLOW__LOGYARD__BROKER_{name}_COMMAND", '["it", "{broker_id}"]')
    hung = cluster.controller
    assert hung is not None
    cluster.hung.add(hung)
    operator = RecoverControllerOperator(task_id="r", deferrable=True, poll_interval_s=0.01, grace_s=0.2)
    result, deferrals = run(operator, context())
    assert deferrals >= 2
    assert (result["finding"], result["restarted"]) == ("CONTROLLER_HUNG", [hung])
    assert any("fenced" in action for action in result["actions"])


def test_a_connections_command_needs_the_switch(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadSettings, match="allow_connection_launcher"):
        run(RecoverControllerOperator(task_id="r"), context())
    monkeypatch.setenv("AIRFLOW__LOGYARD__ALLOW_CONNECTION_LAUNCHER", "True")
    assert run(RecoverControllerOperator(task_id="r"), context())[0]["finding"] == "HEALTHY"


def test_without_zookeeper_the_recovery_says_so(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, cluster, ensemble=False)
    with pytest.raises(EnsembleUnreachable):
        run(RecoverControllerOperator(task_id="r", restart_brokers=False), context())


SENSORS: list[tuple[type, dict[str, Any], str]] = [
    (TopicReadySensor, {"topic": "t", "partitions": "6"}, "name"),
    (TopicReadySensor, {"topic": "t", "partitions": "None"}, "name"),
    (UnderReplicatedPartitionsSensor, {"topics": '["t"]'}, "controller"),
    (ControllerElectedSensor, {"other_than": "9"}, "controller"),
    (BrokerUpSensor, {"brokers": "[1, 2, 3]"}, "brokers"),
]


@pytest.mark.parametrize(("sensor", "fields", "key"), SENSORS)
@pytest.mark.parametrize("deferrable", [True, False])
def test_sensors_find_what_is_there(
    cluster: MemoryCluster, sensor: Any, fields: dict[str, Any], key: str, deferrable: bool
) -> None:
    result, deferrals = run(sensor(task_id="s", deferrable=deferrable, **fields), context())
    assert key in result
    assert deferrals == 0


def test_a_sensor_defers_and_comes_back(cluster: MemoryCluster) -> None:
    cluster.ticks_to_expire = 0
    cluster.kill(3)
    cluster.tick()
    cluster.start(3)
    cluster.returning[3] = 3
    result, deferrals = run(
        UnderReplicatedPartitionsSensor(task_id="s", deferrable=True, poke_interval=0.01), context()
    )
    assert (deferrals, result["partitions"]) == (1, 6)


def test_a_wait_that_is_too_long_reports_what_was_missing(cluster: MemoryCluster) -> None:
    trigger = ControllerElectedTrigger(
        other_than=cluster.controller, logyard_conn_id="logyard_default", poll_interval_s=0.01, deadline_ms=0
    )
    event = first_event(trigger)
    assert event["status"] == "timeout"
    with pytest.raises(WaitFailed, match="a controller other than"):
        WaitEvent.from_event(event)
    with pytest.raises(WaitFailed, match="no event"):
        WaitEvent.from_event(None)


def test_a_cluster_that_does_not_answer_is_waited_for_until_the_end(cluster: MemoryCluster) -> None:
    cluster.running.clear()
    trigger = TopicReadyTrigger(
        topic="t", partitions=None, logyard_conn_id="logyard_default", poll_interval_s=0.01, deadline_ms=0
    )
    assert "no broker answered" in first_event(trigger)["message"]


async def test_many_who_wait_cost_one_look(cluster: MemoryCluster) -> None:
    before = cluster.looks
    watch = ClusterWatch.of("logyard_default")
    assert watch is ClusterWatch.of("logyard_default")
    for _ in range(2):
        looks = await asyncio.gather(*(watch.next_look(0.01) for _ in range(500)))
        assert all(look is looks[0] for look in looks)
    assert cluster.looks - before == 2


async def test_nobody_waiting_costs_nothing(cluster: MemoryCluster) -> None:
    watch = ClusterWatch.of("logyard_default")
    await watch.next_look(0.01)
    before = cluster.looks
    await asyncio.sleep(0.1)
    assert cluster.looks == before


def test_the_connections_form_is_complete_and_matches_what_is_read() -> None:
    from airflow.providers_manager import _create_provider_info_schema_validator  # type: ignore[attr-defined]

    info = get_provider_info()
    _create_provider_info_schema_validator().validate(info)
    declared = set(info["connection-types"][0]["conn-fields"])
    source = Path("logyard/admin/settings.py").read_text()
    assert all(f'"{name}"' in source for name in declared)


def test_every_class_that_airflow_is_told_about_exists() -> None:
    import importlib

    info = get_provider_info()
    modules = [
        m for kind in ("operators", "sensors", "hooks", "triggers") for e in info[kind] for m in e["python-modules"]
    ]
    for module in modules:
        importlib.import_module(module)
    for path in [*info["extra-links"], *(c["hook-class-name"] for c in info["connection-types"])]:
        module, name = path.rsplit(".", 1)
        assert hasattr(importlib.import_module(module), name)


def test_test_connection_tells_what_fails(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    good, said = ClusterHook().test_connection()
    assert good
    assert "3 brokers" in said
    assert "epoch" in said
    cluster.running.clear()
    assert ClusterHook().test_connection() == (False, "Brokers: no broker answered")
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps({"conn_type": "logyard", "host": ""}))
    assert "bootstrap" in ClusterHook().test_connection()[1]


def test_the_connections_port_belongs_to_a_single_host(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {"conn_type": "logyard", "host": "broker.example", "port": 9092, "login": "u", "password": "p"}
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps(connection))
    settings = ClusterHook().settings
    assert settings.bootstrap == ("broker.example:9092",)
    assert (settings.username, settings.password) == ("u", "p")


def test_deadlines_lie_in_the_future() -> None:
    waiting = RecoverControllerOperator(task_id="r", wait_timeout_s=5).waiting()
    assert 0 < waiting["deadline_ms"] - time.time() * 1000 <= 5001
