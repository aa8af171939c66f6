"""The example DAGs of docs/examples: every operator and sensor has one, all are parsed, and their tasks run."""

import importlib
import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from airflow.sdk import DAG, BaseOperator

from logyard.admin.cluster.snapshot import NewTopic
from logyard.broker.model import TopicPartition
from logyard.operators.airflow_names import AirflowSkipException
from logyard.operators.provider_info import get_provider_info
from logyard.operators.sensors.records import AwaitRecordSensor
from logyard.operators.spark_provider import SparkSubmitOperator
from tests.support import references
from tests.support.airflow_tasks import CONNECTION, FakeTaskInstance, Store, run, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster
from tests.support.mock_kafka import MockKafka

pytestmark = pytest.mark.airflow

FILES = sorted((references.ROOT / "docs" / "examples").glob("*.py"))
# What others are made of.
BASES = {"AclOperator", "CatalogOperator", "ClusterOperator", "ClusterSensor", "SparkSegmentsOperator", "TopicOperator"}


def all_dags() -> list[Any]:
    """Each DAG of a file is found by what its `with` leaves behind: the file is run with DAG listening."""
    found: list[DAG] = []
    entered = DAG.__enter__

    def enter(self: DAG) -> Any:
        found.append(self)
        return entered(self)

    DAG.__enter__ = enter  # type: ignore[method-assign]
    try:
        for path in FILES:
            runpy.run_path(str(path))
    finally:
        DAG.__enter__ = entered  # type: ignore[method-assign]
    return found


DAGS = all_dags()


class Told(FakeTaskInstance):
    """A task instance whose DAG run remembers what the tasks before it returned."""

    def __init__(self, results: dict[str, Any], task_id: str) -> None:
        super().__init__(task_id=task_id)
        self._results = results

    def xcom_pull(self, task_ids: Any = None, **_: Any) -> Any:
        return self._results[task_ids if isinstance(task_ids, str) else next(iter(task_ids))]


@pytest.fixture(scope="module")
def kafka() -> Iterator[MockKafka]:
    with MockKafka() as made:
        made.write("orders", [("k", json.dumps({"n": n})) for n in range(5)])
        made.write("again", [("k", "first")])
        yield made


@pytest.fixture
def world(kafka: MockKafka, monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    made = MemoryCluster({1: None, 2: None, 3: None}, cluster_id=kafka.cluster_id)
    client = MemoryClient(made)
    client.create_topic(NewTopic("orders", assignment=dict.fromkeys(range(3), (1, 2))))
    client.create_topic(NewTopic("scratch", assignment={0: (1,)}))
    client.snapshot()
    made.end_offsets.update({TopicPartition("orders", p): 20 for p in range(4)})
    client.alter_group_offsets("nightly", {TopicPartition("orders", p): 15 for p in range(3)})
    client.alter_group_offsets("orders-dag", {TopicPartition("orders", 0): 0})
    use(monkeypatch, made)
    monkeypatch.setenv("AIRFLOW_CONN_ORDERS_PASSWORD", json.dumps({"conn_type": "generic", "password": "x"}))
    monkeypatch.setenv("AIRFLOW_CONN_ORDERS_STORE", json.dumps({"conn_type": "aws", "login": "AKIA", "password": "x"}))
    monkeypatch.setenv("AIRFLOW_CONN_ORDERS_CATALOG", json.dumps({"conn_type": "iceberg", "host": "http://catalog"}))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[*]"}))

    def submit(operator: Any, ctx: Any) -> None:
        arguments = operator.application_args
        summary = {"job": "other", "records": 0, "topics": ["orders"], "rows": 0, "offsets": {}}
        Path(arguments[arguments.index("--output") + 1]).write_text(json.dumps(summary))

    monkeypatch.setattr(SparkSubmitOperator, "execute", submit)
    return made


def test_every_operator_and_sensor_has_an_example() -> None:
    info = get_provider_info()
    wanted: set[str] = set()
    for entry in [*info["operators"], *info["sensors"]]:
        for module in map(importlib.import_module, entry["python-modules"]):
            wanted |= {
                name
                for name, found in vars(module).items()
                if isinstance(found, type) and issubclass(found, BaseOperator) and found.__module__ == module.__name__
            }
    assert wanted - BASES - {type(task).__name__ for dag in DAGS for task in dag.tasks} == set()
    assert len(DAGS) == len({dag.dag_id for dag in DAGS})


@pytest.mark.slow
@pytest.mark.parametrize("dag", DAGS, ids=lambda dag: str(dag.dag_id))
def test_its_tasks_run(dag: Any, world: MemoryCluster, kafka: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    results: dict[str, Any] = {}
    for task in dag.topological_sort():
        ctx: Any = {"ti": Told(results, task.task_id), "task_state_store": Store(), "dag": dag, "params": {}}
        if type(task).__module__.startswith("airflow."):
            continue
        if type(task).__module__.endswith((".producing", ".consuming", ".copying", ".sensors.records", ".decorators")):
            monkeypatch.setenv("AIRFLOW_CONN_LOGYARD_DEFAULT", json.dumps({**CONNECTION, "host": kafka.bootstrap}))
        if isinstance(task, AwaitRecordSensor):
            task.timeout = 1
        if task.task_id == "approve":
            continue  # asks Airflow's database
        task.render_template_fields(ctx)
        try:
            results[task.task_id], _ = run(task, ctx)
        except AirflowSkipException:
            assert getattr(task, "soft_fail", False) or task.task_id == "choose"
