"""Every DAG file imports quickly, alone, with nothing heavy, and has what a form and an operator need."""

import importlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.sdk.definitions.mappedoperator import MappedOperator
from airflow.sdk.exceptions import ParamValidationError
from airflow.serialization.serialized_objects import DagSerialization
from pendulum.tz.exceptions import InvalidTimezone

from logyard.dags.factories import spark_form
from logyard.dags.factories.audit_replicas import audit_replicas_dag
from logyard.dags.factories.compact_segments import compact_segments_dag
from logyard.dags.factories.export_segments import export_segments_dag
from logyard.dags.factories.maintain_table import maintain_table_dag
from logyard.dags.factories.retention_report import retention_report_dag
from logyard.dags.factories.topics_as_code import topics_as_code_dag
from logyard.operators.approval import ApprovePlanOperator
from logyard.operators.reassignment import PlanReassignmentOperator
from logyard.operators.spark import job_file

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


NAMES = (
    "abort_hanging_transactions",
    "alter_acls",
    "alter_broker_settings",
    "alter_quotas",
    "alter_user",
    "audit_replicas",
    "cancel_reassignment",
    "compact_segments",
    "controller_watch",
    "copy_records",
    "create_topic",
    "decommission_broker",
    "delete_groups",
    "elect_leaders",
    "export_segments",
    "grant_access",
    "maintain_table",
    "reassign_replicas",
    "recover_controller",
    "reset_offsets",
    "retention_report",
    "revoke_access",
    "send_record",
    "topic_lifecycle",
    "topics_as_code",
)


def test_there_is_a_file_and_a_factory_for_every_dag() -> None:
    assert [path.stem for path in FILES] == [f"logyard_{name}" for name in NAMES]
    factories = {path.stem for path in (FOLDER / "factories").glob("*.py")}
    assert factories - {"__init__", "params", "schedules", "spark_form", "tasks"} == set(NAMES)
    assert (FOLDER / ".airflowignore").read_text() == "factories/\n"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_dag_is_complete(path: Path) -> None:
    dag = load(path)
    assert dag.dag_id == path.stem
    assert path.read_text().count("\n") < 10, "what a DAG is belongs to its factory"
    assert dag.description
    assert dag.doc_md
    assert "(/plugin/logyard?conn_id=logyard_default)" in dag.doc_md
    assert "logyard" in dag.tags
    assert dag.dagrun_timeout is not None
    assert dag.tasks
    for task in dag.tasks:
        assert task.owner == "logyard"
        # An approval asks a person, an empty task nobody; a mapped task keeps its arguments for later.
        given = getattr(task, "partial_kwargs", vars(task))
        if not isinstance(task, (ApprovePlanOperator, EmptyOperator)):
            assert given["logyard_conn_id"] == "logyard_default"
    for name in dag.params:
        assert dag.params.get_param(name).schema.get("title"), f"param {name} has no title"
        assert dag.params.get_param(name).description, f"param {name} has no description"
    dag.validate()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("name", NAMES)
def test_a_factory_gives_another_prefix_and_connection(name: str) -> None:
    make = getattr(importlib.import_module(f"logyard.dags.factories.{name}"), f"{name}_dag")
    dag = make("yard2_", "logyard_two")
    assert dag.dag_id == f"yard2_{name}"
    found = {getattr(task, "partial_kwargs", vars(task)).get("logyard_conn_id") for task in dag.tasks}
    assert found - {None} == {"logyard_two"}


@pytest.mark.parametrize(("stem", "name"), [("reassign_replicas", "drain"), ("decommission_broker", "brokers")])
def test_brokers_are_typed_as_lines_or_sent_as_numbers(stem: str, name: str) -> None:
    param = load(FOLDER / f"logyard_{stem}.py").params.get_param(name)
    # Airflow's form (3.3): an array whose items have no type, or the type string, is a field of lines, else raw JSON.
    assert param.schema["type"] == "array"
    assert "type" not in param.schema["items"]
    for value in (["1", "20"], [1, 20]):
        assert param.resolve(value) == value
        assert PlanReassignmentOperator(task_id="p", drain=json.dumps(value)).goals().drain == {1, 20}
    for wrong in (["one"], [-1], [""], [True], ["1, 2"], [1.5], "1"):
        with pytest.raises(ParamValidationError):
            param.resolve(wrong)


def test_every_form_can_be_sent_as_it_is_but_for_what_it_asks_for() -> None:
    """A Param whose default breaks its own schema would refuse the scheduled runs."""
    required = {path.stem: sorted(name for name in load(path).params if not _valid(load(path), name)) for path in FILES}
    assert {stem: names for stem, names in required.items() if names} == {
        "logyard_alter_broker_settings": ["broker"],
        "logyard_alter_user": ["user"],
        "logyard_copy_records": ["to_topic", "topic"],
        "logyard_create_topic": ["topic"],
        "logyard_topic_lifecycle": ["topic"],
        "logyard_decommission_broker": ["brokers"],
        "logyard_delete_groups": ["groups"],
        "logyard_grant_access": ["user"],
        "logyard_reset_offsets": ["group", "to"],
        "logyard_revoke_access": ["user"],
        "logyard_send_record": ["topic"],
    }


def _valid(dag: DAG, name: str) -> bool:
    try:
        dag.params.get_param(name).resolve()
    except ParamValidationError:
        return False
    return True


def test_what_starts_brokers_by_itself_is_off_until_somebody_turns_it_on() -> None:
    dags = {path.stem: load(path) for path in FILES}
    assert [stem for stem, dag in dags.items() if dag.is_paused_upon_creation] == ["logyard_controller_watch"]
    watched: Any = dags["logyard_controller_watch"].timetable.asset_condition
    triggers = [watcher.trigger for asset in watched.objects for watcher in asset.watchers]
    assert {type(trigger).__name__ for trigger in triggers} == {
        "ControllerChangedEvent",
        "BrokerLostEvent",
        "UnderReplicationEvent",
    }
    scheduled = {stem for stem, dag in dags.items() if dag.schedule is not None}
    assert scheduled == {
        "logyard_compact_segments",
        "logyard_controller_watch",
        "logyard_export_segments",
        "logyard_maintain_table",
        "logyard_retention_report",
    }


@pytest.mark.parametrize("factory", [audit_replicas_dag, compact_segments_dag, export_segments_dag])
def test_jobs_of_spark_work_through_lists_of_topics(factory: Callable[..., DAG]) -> None:
    dag = factory(max_topics_a_job=7)
    assert dag.params["max_topics_a_job"] == 7
    tasks: list[Any] = dag.tasks
    choose, job = tasks
    assert choose.max_topics_a_job == "{{ params.max_topics_a_job }}"
    assert job.upstream_task_ids == {"choose"}
    assert isinstance(job, MappedOperator)
    label = dag.get_template_env().from_string(job.partial_kwargs["map_index_template"])
    assert label.render(task=SimpleNamespace(topics=["a"])) == "a"
    assert label.render(task=SimpleNamespace(topics=["a", "b", "c"])) == "a and 2 more"


@pytest.mark.parametrize("factory", [audit_replicas_dag, compact_segments_dag, export_segments_dag])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark", {"spark.jars": "http://evil/x.jar"}),
        ("spark", {"spark.driver.extraJavaOptions": "-javaagent:/tmp/x.jar"}),
        ("spark", {"spark.executor.memory": "1g -javaagent:/tmp/x.jar"}),
        ("spark", {"spark.sql.shuffle.partitionsX": 1}),
        ("options", {"bootstrap-server": "evil:9092"}),
        ("options", {"cluster-file": "/etc/passwd"}),
        ("options", {"report": "/opt/airflow"}),
        ("options", {"security": "x.json"}),
        ("options", {"lease-ttl-s": "--security"}),
        ("options", {"lease-ttl-s": ["60"]}),
    ],
)
def test_who_starts_a_job_gives_sizes_and_no_code_files_or_addresses(
    factory: Callable[..., DAG], name: str, value: dict[str, Any]
) -> None:
    form = factory().params.get_param(name)
    with pytest.raises(ParamValidationError):
        form.resolve(value)
    sizes: dict[str, dict[str, Any]] = {
        "spark": {"spark.executor.memory": "4g", "spark.cores.max": 8, "spark.speculation": True},
        "options": {"lease-ttl-s": 120},
    }
    good = sizes[name]
    assert form.resolve(good) == good
    assert form.resolve(None) is None


@pytest.mark.parametrize("value", [{"spark.jars": "http://evil/x.jar"}, {"spark.driver.extraJavaOptions": "-Dx=y"}])
def test_who_starts_the_maintenance_of_a_table_brings_no_code(value: dict[str, Any]) -> None:
    form = maintain_table_dag().params.get_param("spark")
    with pytest.raises(ParamValidationError):
        form.resolve(value)
    assert form.resolve({"spark.executor.memory": "4g"}) == {"spark.executor.memory": "4g"}


def test_a_deployment_says_among_which_catalogs_a_form_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert maintain_table_dag().params.get_param("catalog").resolve("any") == "any"
    monkeypatch.setenv("AIRFLOW__LOGYARD__CATALOG_CONNECTIONS", "lake, other")
    form = maintain_table_dag(catalog_conn_id="own").params.get_param("catalog")
    assert [form.value, *(form.resolve(name) for name in ("lake", "other", "own"))] == ["own", "lake", "other", "own"]
    assert maintain_table_dag().params.get_param("catalog").value is None
    with pytest.raises(ParamValidationError):
        form.resolve("any")


@pytest.mark.parametrize(
    ("job", "allowed"), [("audit", spark_form.AUDIT), ("compact", spark_form.COMPACTION), ("export", spark_form.EXPORT)]
)
def test_options_of_a_form_are_those_of_its_job(job: str, allowed: tuple[str, ...]) -> None:
    command = [sys.executable, str(job_file(job)), "--help"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert [name for name in allowed if f"--{name} " not in said] == []


def test_an_export_has_one_writer_at_a_time() -> None:
    export: Any = export_segments_dag().get_task("export")
    assert export.partial_kwargs["max_active_tis_per_dagrun"] == 1


def test_when_runs_of_spark_end_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert export_segments_dag().dagrun_timeout == timedelta(minutes=60)
    monkeypatch.setenv("AIRFLOW__LOGYARD__EXPORT_TIMEOUT_MINUTES", "600")
    assert export_segments_dag().dagrun_timeout == timedelta(hours=10)
    for factory in (export_segments_dag, compact_segments_dag, audit_replicas_dag):
        assert factory(timeout=timedelta(days=2)).dagrun_timeout == timedelta(days=2)


@pytest.mark.parametrize(
    "factory", [compact_segments_dag, export_segments_dag, retention_report_dag, topics_as_code_dag]
)
def test_a_schedule_has_the_time_zone_that_it_names(factory: Callable[..., DAG]) -> None:
    def stored(dag: DAG) -> dict[str, Any]:
        timetable: dict[str, Any] = DagSerialization.to_dict(dag)["dag"]["timetable"]["__var"]
        return timetable

    plain, zoned = factory(schedule="30 2 * * *"), factory(schedule="30 2 * * *", timezone="Europe/Berlin")
    assert stored(zoned) == stored(plain) | {"timezone": "Europe/Berlin"}
    assert stored(factory(schedule="@hourly", timezone="Asia/Kolkata"))["timezone"] == "Asia/Kolkata"
    with pytest.raises(InvalidTimezone):
        factory(schedule="@daily", timezone="Europe/Nowhere")


def test_parsing_brings_in_nothing_heavy_and_takes_little_time() -> None:
    script = f"""
import sys, time
import airflow.sdk, airflow.providers.apache.spark.operators.spark_submit, airflow.triggers.base
import airflow.providers.standard.operators.hitl
heavy_before = {{name for name in {HEAVY!r} if name in sys.modules}}
import importlib.util
import json
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
    assert float(slowest) < 1.5  # 0.2 s of the CPU; more where nothing is compiled yet, or two share a core
