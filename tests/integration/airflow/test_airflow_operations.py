"""Operating three real brokers by real DAG runs: scheduler, triggerer, workers that die, controllers that hang."""

import json
import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psutil
import pytest

from logyard.admin.cluster.client import KafkaClusterClient
from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.reassignment.throttles import settings
from logyard.local.airflow.api import AirflowError, Run, TaskView
from logyard.local.airflow.dag_files import DAGS
from tests.integration.conftest import CONFIG
from tests.support.airflow_yard import Yard, running_yard
from tests.support.real_cluster import eventually

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(600)]

AGAIN = "logyard_again"
OWN_DAGS = '''
"""A reassignment that holds its worker, sensors, a task that dies: airflow finds the dag objects by name."""

import os
import signal
from datetime import timedelta

from airflow.sdk import DAG

from logyard.dags.factories.controller_watch import controller_watch_dag
from logyard.dags.factories.reassign_replicas import reassign_replicas_dag
from logyard.operators.groups import ResetOffsetsOperator
from logyard.operators.producing import ProduceToTopicOperator
from logyard.operators.sensors.cluster import BrokerUpSensor, UnderReplicatedPartitionsSensor
from logyard.operators.sensors.offsets import ConsumerLagBelowSensor, OffsetsReachedSensor
from logyard.operators.transaction_outcomes import TransactionOutcome

class Dies(ProduceToTopicOperator):
    """Its first try is killed when it has committed, before Airflow knows of that."""

    def execute(self, context):
        if context["ti"].try_number == 1:
            TransactionOutcome.known = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(context)

with DAG(dag_id="dying", schedule=None, dagrun_timeout=timedelta(minutes=5)) as dying:
    again = {"retries": 1, "retry_delay": timedelta(seconds=1)}
    Dies(task_id="write", topic="once", records=[{"value": str(n)} for n in range(5)], transactional=True, **again)

holding = reassign_replicas_dag("holding_", deferrable=False)
watching = controller_watch_dag("quick_", poll_interval_s=1.0)
with DAG(dag_id="sensing", schedule=None, dagrun_timeout=timedelta(minutes=5)) as sensing:
    waiting = {"deferrable": True, "poke_interval": 1.0, "timeout": 120}
    up = BrokerUpSensor(task_id="up", brokers=[0, 1, 2], **waiting)
    whole = UnderReplicatedPartitionsSensor(task_id="whole", hold_s=3, **waiting)
    written = OffsetsReachedSensor(task_id="written", topic="sensed", offsets={"0": 50}, **waiting)
    reset = ResetOffsetsOperator(task_id="reset", group="readers", topics=["sensed"], to="latest")
    read = ConsumerLagBelowSensor(task_id="read", group="readers", max_lag=0, **waiting)
    up >> whole >> written >> reset >> read
'''


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """Three brokers, and Airflow over the DAGs that `install-dags` wrote."""
    awaited = ("logyard_topics_as_code", "holding_reassign_replicas", "sensing", "dying")
    with running_yard(tmp_path_factory.mktemp("yard"), CONFIG, awaited, OWN_DAGS, again=AGAIN) as running:
        yield running


def test_every_dag_is_known_and_nothing_failed_to_import(yard: Yard) -> None:
    for dag in DAGS:
        if dag != "controller_watch":  # off until somebody turns it on
            yard.api.wait_dag(f"logyard_{dag}", 60)
    assert yard.api.import_errors() == []
    assert yard.api.plugin_import_errors() == []
    assert yard.api.get("/api/v2/dags/logyard_controller_watch")["is_paused"] is True


def test_a_refusal_is_one_line_of_the_tasks_log(yard: Yard) -> None:
    form = {"topic": "refused", "partitions": 1, "replication_factor": 1, "configs": {"retention.ms": "abc"}}
    run = yard.api.trigger("logyard_create_topic", form)
    with pytest.raises(AirflowError, match=r"retention\.ms"):
        yard.api.wait_run(run, 120)
    (task,) = [task for task in yard.api.tasks(run) if task.task_id == "create"]
    where = f"/api/v2/dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances/create/logs/{task.try_number}"
    lines = [line for line in yard.api.get(where)["content"] if isinstance(line, dict)]
    errors = [line for line in lines if line.get("level") == "error"]
    assert (len(errors), task.try_number) == (1, 1)
    assert "retention.ms" in errors[0]["event"]
    assert "frames" not in json.dumps(lines)


def test_a_run_works_on_the_cluster_that_its_form_chooses(yard: Yard) -> None:
    """By a connection that only the configuration names; others are refused, and the page finds the DAG for both."""
    for dag in ("create_topic", "export_segments"):
        yard.api.wait_dag(f"logyard_{dag}", 60)
    run = yard.api.run_dag("logyard_create_topic", {"topic": "chosen", "logyard_conn_id": AGAIN}, 120)
    where = f"/api/v2/dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances"
    found = {
        task["task_id"]: task["rendered_fields"]["logyard_conn_id"]
        for task in yard.api.get(where)["task_instances"]
        if "logyard_conn_id" in task["rendered_fields"]
    }
    assert set(found.values()) == {AGAIN}
    with pytest.raises(AirflowError):
        yard.api.trigger("logyard_create_topic", {"topic": "other", "logyard_conn_id": "spark_default"})
    for conn_id in (AGAIN, "logyard_default"):
        actions = yard.api.get("/logyard/api/actions", conn_id=conn_id)["actions"]
        served = {one["dag_id"]: one["default_conn_id"] for one in actions}
        assert served["logyard_create_topic"] == "logyard_default"
        assert served.get("logyard_export_segments") is None
        assert ("logyard_export_segments" in served) == (conn_id == "logyard_default")


def test_topics_as_code_waits_for_a_person(yard: Yard) -> None:
    (yard.dags / "topics.yaml").write_text(
        "version: 1\nowns: 'coded-.*'\ndefaults: {partitions: 2, replication_factor: 3}\n"
        "topics: {coded-one: {}, coded-two: {configs: {cleanup.policy: compact}}}\n"
    )
    run = yard.api.trigger("logyard_topics_as_code")
    eventually(lambda: _state(yard, run, "approve") == "awaiting_input", "the approval asks", 120)
    with yard.client() as client:
        assert client.snapshot(["coded-one"]).missing == ("coded-one",)
    where = f"/api/v2/dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances/approve/-1/hitlDetails"
    assert "coded-two: + cleanup.policy: compact" in yard.api.get(where)["body"]
    # A person takes seconds. An answer in milliseconds starts a second worker while the one that asked still ends.
    asking = yard.task(run, "approve")
    assert asking is not None
    eventually(lambda: not _workers(asking), "the worker that asked has ended", 60)
    yard.api.send("PATCH", where, json={"chosen_options": ["Approve"], "params_input": {}})
    yard.api.wait_run(run, 120)
    assert yard.result(run, "apply")["changed"] == ["coded-one", "coded-two"]
    again = yard.api.run_dag("logyard_topics_as_code", timeout_s=120)
    assert yard.result(again, "apply")["changed"] == []  # nothing to do: nobody was asked


def test_sensors_wait_in_the_triggerer(yard: Yard) -> None:
    yard.cluster.create("sensed", partitions=1)
    run = yard.api.trigger("sensing")
    eventually(lambda: _state(yard, run, "written") == "deferred", "the sensor waits", 120)
    yard.cluster.produce("sensed", [(b"k", b"v")] * 50)
    yard.api.wait_run(run, 120)
    assert yard.result(run, "whole")["held_s"] >= 3
    assert yard.result(run, "written")["offsets"] == {"0": 50}
    assert yard.result(run, "reset")["changed"] == {"sensed-0": {"before": None, "after": 50}}
    assert yard.result(run, "read")["lag"] == 0


def test_a_reassignment_outlives_its_worker(yard: Yard) -> None:
    """SIGKILL for the task's process while replicas move under a throttle: the next try adopts the moves."""
    with yard.client() as client:
        _create_on(client, "moved", {0: (0, 1), 1: (1, 0)})
        value = os.urandom(100_000)
        yard.cluster.produce("moved", [(b"%d" % n, value) for n in range(60)])
        run = yard.api.trigger(
            "holding_reassign_replicas", {"topics": ["moved"], "drain": [0], "approve": False, "throttle": 150_000}
        )
        moving = eventually(client.list_reassignments, "replicas move", 120)
        task = yard.task(run, "execute")
        assert task is not None
        _kill(task)
        eventually(lambda: _state(yard, run, "execute") in ("up_for_retry", "queued", "scheduled"), "a retry is due")
        assert client.list_reassignments()  # the moves went on alone
        yard.api.wait_run(run, 240)
        ended = yard.task(run, "execute")
        assert ended is not None
        assert ended.try_number == 2
        assert set(yard.result(run, "execute")["moved"]) == {"moved-0", "moved-1"} >= {str(tp) for tp in moving}
        assert yard.result(run, "verify")["as_planned"] == 2
        snapshot = client.snapshot(["moved"])
        assert all(0 not in view.replicas for _, view in snapshot.partitions())
        assert snapshot.not_preferred(["moved"]) == []
        assert _throttles(client, "moved") == []
        assert _throttle_records(yard) == []


def test_a_worker_that_dies_before_its_trigger_runs_is_gone_on_from(yard: Yard) -> None:
    """SIGKILL between the moves' start and the deferral: nobody waits for them, until the next try adopts them."""
    with yard.client() as client:
        _create_on(client, "orphaned", {0: (0, 1)})
        value = os.urandom(100_000)
        yard.cluster.produce("orphaned", [(b"%d" % n, value) for n in range(40)])
        conf = {"topics": ["orphaned"], "drain": [0], "approve": False, "throttle": 100_000}
        run = yard.api.trigger("logyard_reassign_replicas", conf)
        eventually(client.list_reassignments, "the replica moves", 120)
        task = yard.task(run, "execute")
        assert task is not None
        assert task.state == "running"  # it looks by itself for `defer_after_s` before it defers
        _kill(task)
        assert not _is_triggered(yard, run, "execute")
        assert client.list_reassignments()
        yard.api.wait_run(run, 240)
        ended = yard.task(run, "execute")
        assert ended is not None
        assert ended.try_number > 1
        assert yard.result(run, "execute")["moved"] == ["orphaned-0"]
        assert 0 not in client.snapshot(["orphaned"]).topics["orphaned"].partitions[0].replicas
        assert _throttles(client, "orphaned") == []
        assert _throttle_records(yard) == []


def test_marking_a_move_as_failed_cancels_it(yard: Yard) -> None:
    with yard.client() as client:
        _create_on(client, "stays", {0: (0, 1)})
        value = os.urandom(100_000)
        yard.cluster.produce("stays", [(b"k", value) for _ in range(60)])
        conf = {"topics": ["stays"], "drain": [0], "approve": False, "throttle": 50_000}
        run = yard.api.trigger("logyard_reassign_replicas", conf)
        # What is killed before its trigger runs has nothing that could hear of it.
        eventually(lambda: _is_triggered(yard, run, "execute"), "the move is waited for", 120)
        assert client.list_reassignments()
        # The run would start it again: what cancels the moves of others leaves it alone.
        other = yard.api.trigger("logyard_cancel_reassignment", {"approve": False})
        eventually(lambda: _state(yard, other, "plan") == "failed", "it is refused", 60)
        assert f"run {run.run_id} of {run.dag_id} moves replicas" in yard.api.why_failed(other)
        assert client.list_reassignments()
        where = f"/api/v2/dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances/execute"
        yard.api.send("PATCH", where, json={"new_state": "failed"})
        eventually(lambda: not client.list_reassignments(), "the move is cancelled")
        eventually(lambda: not _throttles(client, "stays"), "the throttle is gone")
        assert set(client.snapshot(["stays"]).topics["stays"].partitions[0].replicas) == {0, 1}
        eventually(lambda: _state(yard, run, "verify") == "failed", "the verification says so", 120)
        assert _throttle_records(yard) == []


def test_a_hung_controller_is_recovered_in_rounds(yard: Yard) -> None:
    yard.cluster.create("survives", partitions=6)
    holder, epoch = yard.cluster.controller()
    os.kill(yard.pid(holder), signal.SIGSTOP)
    run = yard.api.run_dag("logyard_recover_controller", timeout_s=300)
    found = yard.result(run, "recover")
    # A busy machine begins the run when the session has ended and another was elected: only what hangs is left then.
    before = (found["finding"], found["controller_before"])
    assert before == ("CONTROLLER_HUNG", holder) or (before[0] == "HEALTHY" and before[1] != holder)
    assert found["restarted"] == [holder]
    assert found["epoch_after"] > epoch
    assert (found["partitions_led"], found["under_replicated"]) == (found["partitions"], 0)
    assert yard.cluster.isrs_full("survives")


def test_a_wedged_epoch_is_recovered(yard: Yard) -> None:
    holder, epoch = yard.cluster.controller()
    with yard.cluster.zookeeper() as zk:
        zk.set("/controller_epoch", b"garbage")
    os.kill(yard.pid(holder), signal.SIGKILL)
    run = yard.api.run_dag("logyard_recover_controller", {"epoch_before": epoch}, 300)
    found = yard.result(run, "recover")
    assert any("into /controller_epoch" in action for action in found["actions"])
    assert found["epoch_after"] > epoch
    assert yard.cluster.isrs_full("survives")


def test_a_dead_controller_is_recovered_by_the_watch_alone(yard: Yard) -> None:
    yard.api.wait_dag("quick_controller_watch", 60)  # which turns it on
    # Airflow makes the watchers' triggers when it reads the file again.
    (yard.dags / "own.py").write_text(OWN_DAGS + "\n")
    eventually(lambda: _watchers(yard) == 3, "the watchers run", 120)
    time.sleep(10)  # and have seen the cluster while it is well
    holder, epoch = yard.cluster.controller()
    os.kill(yard.pid(holder), signal.SIGKILL)

    def brought_back() -> bool:
        with yard.client() as client:
            snapshot = client.snapshot()
        return sorted(snapshot.brokers) == [0, 1, 2] and not snapshot.under_replicated()

    runs = "/api/v2/dags/quick_controller_watch/dagRuns"
    eventually(lambda: yard.api.get(runs)["dag_runs"], "the watch starts a run", 120)
    eventually(brought_back, "every broker is back", 180)
    assert yard.cluster.controller()[1] > epoch
    eventually(lambda: _ended(yard.api.get(runs)["dag_runs"]), "its runs end", 120)
    assert {run["run_type"] for run in yard.api.get(runs)["dag_runs"]} == {"asset_triggered"}
    yard.api.send("PATCH", "/api/v2/dags/quick_controller_watch", json={"is_paused": True})


def test_a_broker_is_decommissioned(yard: Yard) -> None:
    conf = {"brokers": [2], "replication_factor": 2, "approve": False}
    run = yard.api.run_dag("logyard_decommission_broker", conf, 300)
    found = yard.result(run, "decommission")
    assert (found["empty"], found["brokers"]) == (True, [2])
    with yard.client() as client:
        assert all(2 not in view.replicas for _, view in client.snapshot().partitions())


def test_what_topics_keep_is_reported(yard: Yard) -> None:
    yard.cluster.create("kept", partitions=1, replicas=2, retention_ms="-1")
    yard.cluster.produce("kept", [(b"k", b"v")] * 50)
    run = yard.api.run_dag("logyard_retention_report", {"topics": ["kept"]}, 120)
    found = yard.result(run, "report")
    assert [(entry["topic"], entry["records"]) for entry in found["topics"]] == [("kept", 50)]
    assert found["findings"] == {"kept": ["it has no limit: its records are kept for ever"]}


def _state(yard: Yard, run: Run, task_id: str) -> str:
    task = yard.task(run, task_id)
    return task.state if task else "none"


def test_a_task_that_dies_behind_its_commit_has_written_once(yard: Yard) -> None:
    yard.cluster.create("once", partitions=1)
    run = yard.api.run_dag("dying", timeout_s=180)
    (task,) = yard.api.tasks(run)
    assert task.try_number == 2
    assert yard.result(run, "write")["offsets"] == {"0": {"start": 0, "end": 5}}
    values = [b"%d" % n for n in range(5)]
    assert [message.value() for message in yard.cluster.consume("once", 5)] == values
    body = {"dry_run": False, "dag_run_id": run.run_id, "only_failed": False, "reset_dag_runs": True}
    yard.api.send("POST", "/api/v2/dags/dying/clearTaskInstances", json=body)
    yard.api.wait_run(run, 180)
    assert yard.result(run, "write")["offsets"] == {"0": {"start": 6, "end": 11}}  # behind the marker
    assert [message.value() for message in yard.cluster.consume("once", 10)] == values * 2


def _is_triggered(yard: Yard, run: Run, task_id: str) -> bool:
    """Whether the task's trigger runs: it writes a log of its own then."""
    logs = yard.airflow.home.directory / "logs" / f"dag_id={run.dag_id}" / f"run_id={run.run_id}"
    return any(path.stat().st_size for path in logs.glob(f"task_id={task_id}/*.trigger.*"))


def _watchers(yard: Yard) -> int:
    """How many triggers of asset watchers Airflow's database knows."""
    with closing(sqlite3.connect(f"file:{yard.airflow.home.database}?mode=ro", uri=True)) as database:
        return int(database.execute("select count(*) from asset_watcher").fetchone()[0])


def _ended(runs: list[dict[str, Any]]) -> bool:
    return bool(runs) and all(run["state"] == "success" for run in runs)


def _create_on(client: KafkaClusterClient, topic: str, assignment: dict[int, tuple[int, ...]]) -> None:
    client.create_topic(NewTopic(topic, assignment=assignment))
    eventually(lambda: client.snapshot([topic]).ready(topic), f"{topic} is led")


def _kill(task: TaskView) -> None:
    """kill -9 for the process that runs the task."""
    found = _workers(task)
    assert found, f"no process runs {task.task_id}"
    for process in found:
        process.send_signal(signal.SIGKILL)


def _workers(task: TaskView) -> list[psutil.Process]:
    """The processes that run the task, known by their title."""
    title = f"airflow worker -- {task.details['id']}"
    return [p for p in psutil.process_iter(["cmdline"]) if " ".join(p.info["cmdline"] or ()).startswith(title)]


def _throttles(client: KafkaClusterClient, topic: str) -> list[str]:
    keys = (settings.LEADERS, settings.FOLLOWERS, settings.LEADER_RATE, settings.FOLLOWER_RATE)
    tables = [client.topic_configs(topic), *(client.broker_configs(b) for b in client.snapshot([]).brokers)]
    return [key for table in tables for key in keys if key in table and table[key].is_override and table[key].value]


def _throttle_records(yard: Yard) -> list[str]:
    """The Variables in which runs keep what they throttle."""
    found = yard.api.get("/api/v2/variables", variable_key_pattern="logyard_throttle")
    return [entry["key"] for entry in found["variables"]]
