"""The recovery operator, the sensors, the shared watch, the connection and the provider's description."""

import asyncio
import json
import time
from dataclasses import fields, replace
from importlib import resources
from typing import Any

import jsonschema
import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.ports import ClusterUnreachable, EnsembleUnreachable
from logyard.admin.schema_registry import SchemaRegistry
from logyard.admin.settings import BadSettings, ClusterSettings
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
from logyard.operators.triggers.events import ControllerChangedEvent
from logyard.operators.triggers.watch import ClusterWatch, ConnectionUnreadable
from tests.support.airflow_tasks import context, first_event, run, use
from tests.support.memory_clients import MemoryClient, MemoryConnector
from tests.support.memory_cluster import MemoryCluster
from tests.support.memory_ensemble import MemoryEnsemble

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
    for name in ("START", "STOP", "STATUS"):
        monkeypatch.setenv(f"AIRFLOW__LOGYARD__BROKER_{name}_COMMAND", '["it", "{broker_id}"]')
    hung = cluster.controller
    assert hung is not None
    cluster.hung.add(hung)
    # The grace is also what an election gets, on a machine that may have other work.
    operator = RecoverControllerOperator(task_id="r", deferrable=True, poll_interval_s=0.01, grace_s=2)
    # A host is asked each five seconds, and has to say three times that the broker hangs.
    result, deferrals = run(operator, context(), haste=10)
    assert deferrals >= 2
    assert (result["finding"], result["restarted"]) == ("CONTROLLER_HUNG", [hung])
    assert any("fenced" in action for action in result["actions"])


def test_a_connections_command_needs_the_switch(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadSettings, match="allow_connection_launcher"):
        ClusterHook().launcher()
    cluster.ticks_to_expire = 0
    cluster.kill(3)
    cluster.tick()
    found, _ = run(RecoverControllerOperator(task_id="r"), context())
    assert (found["restarted"], found["missing"]) == ([], [3])
    assert "allow_connection_launcher" in found["withheld"][0]
    monkeypatch.setenv("AIRFLOW__LOGYARD__ALLOW_CONNECTION_LAUNCHER", "True")
    found, _ = run(RecoverControllerOperator(task_id="r"), context())
    assert (found["restarted"], found["missing"], found["withheld"]) == ([3], [], [])


def test_a_hung_controller_is_fenced_without_a_launcher(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, cluster, zookeeper="memory:2")  # no command in the connection, none in the configuration
    hung = cluster.controller
    assert hung is not None
    cluster.hung.add(hung)
    found, _ = run(RecoverControllerOperator(task_id="r", grace_s=5.0), context())
    assert (found["finding"], found["restarted"]) == ("CONTROLLER_HUNG", [])
    assert found["controller_after"] not in (-1, hung)
    assert [action for action in found["actions"] if "fenced" in action]
    # A broker that died is named, and what it would take to start it.
    cluster.ticks_to_expire = 0
    cluster.kill(hung)
    cluster.tick()
    found, _ = run(RecoverControllerOperator(task_id="r", grace_s=5.0), context())
    assert (found["missing"], found["actions"]) == ([hung], [])
    assert "broker_start_command" in found["withheld"][0]


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


def test_an_earlier_topic_of_the_name_is_not_ready(cluster: MemoryCluster) -> None:
    """A broker that is behind still knows it, with all its leaders."""
    client = MemoryClient(cluster)
    cluster.outdated = {"t": client.snapshot(["t"]).topics["t"]}
    client.delete_topic("t")
    sensor = TopicReadySensor(task_id="s", topic="t")
    assert not sensor.poke(context()).is_done
    client.create_topic(NewTopic("t", 2, 3))
    made = client.witnessed(["t"]).topics["t"].topic_id
    assert made is not None
    assert made != cluster.outdated["t"].topic_id
    many = TopicReadySensor(task_id="s", topic="t", partitions=6)
    assert not many.poke(context()).is_done
    found = sensor.poke(context())
    told: Any = found.xcom_value
    assert found.is_done
    assert (told["topic_id"], len(told["partitions"])) == (made, 2)


def test_who_waits_for_a_topic_waits_for_one_who_can_tell(cluster: MemoryCluster) -> None:
    cluster.controller, cluster.electing = None, False
    trigger = TopicReadyTrigger(
        topic="t", partitions=None, logyard_conn_id="logyard_default", poll_interval_s=0.01, deadline_ms=0
    )
    assert "the controller to tell that topic t is ready" in first_event(trigger)["message"]


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


class Recording(MemoryConnector):
    """Hands out clients that are remembered with the settings that they were made from, and refuses one password."""

    def __init__(self, cluster: MemoryCluster, refused: str = "") -> None:
        super().__init__(cluster)
        self.made: list[tuple[str | None, MemoryClient]] = []
        self.refused = refused

    def cluster(self, settings: ClusterSettings) -> MemoryClient:
        if settings.password == self.refused:
            raise ClusterUnreachable("this password is not (or no longer) right")
        self.made.append((settings.password, MemoryClient(self.cluster_state)))
        return self.made[-1][1]


def edit(monkeypatch: pytest.MonkeyPatch, password: str) -> None:
    connection = {"conn_type": "logyard", "host": "memory:1", "login": "airflow", "password": password}
    monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps(connection))


async def test_who_begins_to_wait_sees_the_edited_connection_and_so_does_who_waits_already(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = Recording(cluster)
    monkeypatch.setattr(ClusterHook, "connector", connector)
    edit(monkeypatch, "old")
    watch = ClusterWatch.of("logyard_default")

    async def wait() -> None:
        for _ in range(200):
            await watch.next_look(0.01)

    running = asyncio.create_task(wait())
    await watch.next_look(0.01)
    edit(monkeypatch, "new")
    await watch.next_look(0.01)
    assert [password for password, _ in connector.made] == ["old"]  # nobody had a reason to read it again
    assert not isinstance(await ClusterWatch.of("logyard_default").next_look(0.01), Exception)
    assert [password for password, _ in connector.made] == ["old", "new"]
    await watch.next_look(0.01)
    assert [client.closed for _, client in connector.made] == [True, False]
    assert not running.done()  # it waited through all of this, and goes on with the new one
    running.cancel()


async def test_a_look_that_fails_has_the_connection_read_again(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = Recording(cluster, refused="old")
    monkeypatch.setattr(ClusterHook, "connector", connector)
    edit(monkeypatch, "old")
    watch = ClusterWatch.of("logyard_default")
    assert isinstance(await watch.next_look(0.01), ClusterUnreachable)
    edit(monkeypatch, "new")
    assert not isinstance(await watch.next_look(0.01), Exception)


async def test_a_connection_that_cannot_be_read_for_a_moment_keeps_what_it_said(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = ClusterWatch.of("logyard_default")
    assert not isinstance(await watch.next_look(0.01), Exception)
    monkeypatch.delenv("AIRFLOW_CONN_LOGYARD_DEFAULT")
    assert not isinstance(await ClusterWatch.of("logyard_default").next_look(0.01), Exception)
    monkeypatch.setattr("logyard.operators.triggers.watch.UNREADABLE_S", 0.0)
    told = await ClusterWatch.of("logyard_default").next_look(0.01)
    assert isinstance(told, ConnectionUnreadable)  # deleted: nothing is asked with its credentials any more
    event = ControllerChangedEvent(patience=1)
    assert event.changes(None, told) == []


def test_a_clock_that_is_set_ends_no_wait(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    trigger = ControllerElectedTrigger(
        other_than=cluster.controller,
        logyard_conn_id="logyard_default",
        poll_interval_s=0.01,
        deadline_ms=round((time.time() + 60) * 1000),
    )
    real, jump = time.time, iter([0.0, *[7200.0] * 10_000])
    monkeypatch.setattr("logyard.operators.triggers.base.time.time", lambda: real() + next(jump))

    async def wait() -> None:
        async for _ in trigger.run():
            return

    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(wait(), 0.5))


def test_the_connections_form_is_complete_and_matches_what_is_read() -> None:
    info = get_provider_info()
    jsonschema.validate(info, json.loads(resources.files("airflow").joinpath("provider_info.schema.json").read_text()))
    declared = set(info["connection-types"][0]["conn-fields"])
    registry = {f"schema_registry_{one.name}" for one in fields(SchemaRegistry)}
    assert declared <= {one.name for one in fields(ClusterSettings)} | registry
    assert registry <= declared


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
    with monkeypatch.context() as patched:
        other = replace(MemoryEnsemble(cluster).controller(), cluster_id="another")
        patched.setattr(MemoryEnsemble, "controller", lambda _: other)
        good, said = ClusterHook().test_connection()
        assert not good
        assert "belongs to another cluster, another" in said
    cluster.running.clear()
    assert ClusterHook().test_connection() == (False, "Address: no broker answered")
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
