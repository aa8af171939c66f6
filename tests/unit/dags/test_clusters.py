"""The cluster that is chosen in a run's form, where `[logyard] dag_connections` names several."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError
from airflow.serialization.serialized_objects import DagSerialization

from logyard.admin.errors import LogyardError
from logyard.dags.factories import params
from logyard.operators.hooks.cluster import ClusterHook
from logyard.operators.topics import CreateTopicOperator
from logyard.plugins.logyard_ui.access.actions import connections_of
from tests.support.airflow_tasks import context, run

pytestmark = pytest.mark.airflow

FOLDER = Path(__file__).resolve().parents[3] / "dags" / "factories"
# They belong to one cluster: the first is started by what its own triggers see, the second goes on where its
# destination ends, and the third is of such a destination.
OWN = {"controller_watch", "export_segments", "maintain_table"}
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if f"{path.stem}_dag" in path.read_text())
CHOICE = "AIRFLOW__LOGYARD__DAG_CONNECTIONS"


def _made(name: str, *arguments: str) -> DAG:
    made: DAG = getattr(importlib.import_module(f"logyard.dags.factories.{name}"), f"{name}_dag")(*arguments)
    return made


def _named(dag: DAG) -> set[Any]:
    found = {getattr(task, "partial_kwargs", vars(task)).get("logyard_conn_id") for task in dag.tasks}
    return found - {None}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OWN])
def test_the_form_chooses_among_what_is_configured(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert params.CHOSEN not in _made(name).params
    monkeypatch.setenv(CHOICE, " logyard_default, kafka_west,kafka_west")
    dag = _made(name)
    assert _named(dag) == {"{{ params.logyard_conn_id }}"}
    field = dag.params.get_param(params.CHOSEN)
    assert (field.value, field.schema["enum"]) == ("logyard_default", ["logyard_default", "kafka_west"])
    both: dict[str, str | None] = {"logyard_default": "logyard_default", "kafka_west": "logyard_default"}
    assert connections_of(DagSerialization.to_dict(dag)) == both
    assert field.resolve("kafka_west") == "kafka_west"
    with pytest.raises(ParamValidationError):
        field.resolve("kafka_east")
    # A DAG that was made for a cluster of its own keeps it.
    alone = _made(name, "east_", "kafka_east")
    assert params.CHOSEN not in alone.params
    assert connections_of(DagSerialization.to_dict(alone)) == {"kafka_east": None}
    monkeypatch.setenv(CHOICE, "logyard_default")
    assert params.CHOSEN not in _made(name).params


@pytest.mark.parametrize("name", sorted(OWN))
def test_some_dags_belong_to_one_cluster(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CHOICE, "logyard_default,kafka_west")
    dag = _made(name)
    assert params.CHOSEN not in dag.params
    assert _named(dag) == {"logyard_default"}


@pytest.mark.parametrize("conn_type", ["logyard", "kafka", "generic"])
def test_the_official_providers_connection_is_used_as_it_is(conn_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = {"conn_type": conn_type, "extra": {"bootstrap.servers": "a:1"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(stored))
    assert ClusterHook("kafka_default").settings.bootstrap == ("a:1",)


def test_a_connection_of_another_type_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = {"conn_type": "aws", "host": "lake:1", "login": "AKIA", "password": "hidden-key"}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(lake))
    said = "connection lake is of the type aws: one of logyard, kafka, generic is expected"
    with pytest.raises(LogyardError, match=said):
        _ = ClusterHook("lake").settings
    with pytest.raises(AirflowFailException) as raised:
        run(CreateTopicOperator(task_id="c", topic="t", logyard_conn_id="lake"), context())
    assert str(raised.value) == said
