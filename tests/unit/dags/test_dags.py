"""Every DAG file imports quickly, alone, with nothing heavy, and has what a form and an operator need."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("airflow.sdk")

import importlib.util

from airflow.sdk import DAG

pytestmark = pytest.mark.airflow

FOLDER = Path(__file__).resolve().parents[3] / "dags"
FILES = sorted(path for path in FOLDER.glob("logyard_*.py"))
HEAVY = (
    "kafka",
    "kazoo",
    "numba",
    "numpy",
    "pandas",
    "pyarrow",
    "pyspark",
    "logyard.spark_jobs",
    "logyard.broker.server",
)


def load(path: Path) -> DAG:
    spec = importlib.util.spec_from_file_location(f"dag_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    dags = [value for value in vars(module).values() if isinstance(value, DAG)]
    assert len(dags) == 1, "one DAG per file"
    return dags[0]


def test_there_is_a_dag_for_every_step_of_the_main_job() -> None:
    steps = {"create_topic", "audit", "compact", "export", "reassign", "recover_controller", "topic_lifecycle"}
    assert {path.stem for path in FILES} >= {f"logyard_{step}" for step in steps}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_dag_is_complete(path: Path) -> None:
    dag = load(path)
    assert dag.dag_id == path.stem
    assert dag.description
    assert dag.doc_md
    assert "logyard" in dag.tags
    assert dag.dagrun_timeout is not None
    assert dag.tasks
    for task in dag.tasks:
        assert task.owner == "logyard"
        assert getattr(task, "logyard_conn_id", None) == "logyard_default"
    for name in dag.params:
        assert dag.params.get_param(name).schema.get("title"), f"param {name} has no title"
        assert dag.params.get_param(name).description, f"param {name} has no description"
    dag.validate()


def test_a_factory_gives_another_prefix_and_connection() -> None:
    from logyard.dags.logyard_create_topic import create_topic_dag

    dag = create_topic_dag("yard2_", "logyard_two")
    assert dag.dag_id == "yard2_create_topic"
    assert {task.logyard_conn_id for task in dag.tasks} == {"logyard_two"}


def test_parsing_brings_in_nothing_heavy_and_takes_little_time() -> None:
    script = f"""
import sys, time
import airflow.sdk, airflow.providers.apache.spark.operators.spark_submit, airflow.triggers.base
heavy_before = {{name for name in {HEAVY!r} if name in sys.modules}}
import importlib.util
slowest = 0.0
for path in {[str(path) for path in FILES]!r}:
    spec = importlib.util.spec_from_file_location("d", path)
    module = importlib.util.module_from_spec(spec)
    started = time.process_time()
    spec.loader.exec_module(module)
    slowest = max(slowest, time.process_time() - started)
print(sorted({{name for name in {HEAVY!r} if name in sys.modules}} - heavy_before))
print(slowest)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    heavy, slowest = done.stdout.strip().splitlines()[-2:]
    assert heavy == "[]"
    assert float(slowest) < 1.0
