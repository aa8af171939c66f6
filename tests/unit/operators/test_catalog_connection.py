"""An Iceberg catalog's properties from connections of both types, and how an export's job gets them."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Connection

from logyard.admin.settings import BadSettings
from logyard.operators.airflow_names import AirflowFailException
from logyard.operators.catalog_connection import secrets_of, settings_of_catalog
from logyard.operators.spark import ExportSegmentsOperator
from tests.support.airflow_tasks import context

pytestmark = pytest.mark.airflow


def test_a_generic_connection_has_the_librarys_names() -> None:
    extra = '{"type": "sql", "uri": "sqlite:////x.db", "name": "yard", "empty": ""}'
    found = settings_of_catalog(Connection(conn_id="c", conn_type="generic", extra=extra))
    assert found == {"type": "sql", "uri": "sqlite:////x.db", "name": "yard"}


def test_an_iceberg_connection_is_a_rest_catalog() -> None:
    made = Connection(conn_id="c", conn_type="iceberg", host="https://h", password="t", extra='{"scope": "all"}')
    assert settings_of_catalog(made) == {"type": "rest", "uri": "https://h", "credential": "t", "scope": "all"}


def test_other_types_are_refused() -> None:
    with pytest.raises(BadSettings, match="its type is aws, not one of iceberg, generic"):
        settings_of_catalog(Connection(conn_id="c", conn_type="aws"))
    with pytest.raises(BadSettings, match="its host is the catalog's address"):
        settings_of_catalog(Connection(conn_id="c", conn_type="iceberg"))


@pytest.mark.parametrize("extra", ["{}", '{"host": "smtp", "password": "hidden-word"}', '{"type": ""}'])
def test_a_connection_of_something_else_is_refused_in_one_line(extra: str) -> None:
    """The form of `maintain_table` may name any: its words would become a catalog's properties."""
    with pytest.raises(BadSettings, match="connection c is none of an Iceberg catalog: its extra names none") as told:
        settings_of_catalog(Connection(conn_id="c", conn_type="generic", extra=extra))
    assert "hidden-word" not in str(told.value)


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("credential", "a:b", True),
        ("s3.secret-access-key", "x", True),
        ("header.Authorization", "Basic eDp5", True),
        ("uri", "postgresql+psycopg2://u:p@h/d", True),
        ("uri", "postgresql+psycopg2://u:p/q@h/d", True),
        ("uri", "https://h/api", False),
        ("uri", "https://h:8181/api", False),
        ("warehouse", "yard", False),
    ],
)
def test_what_is_kept_out_of_logs(name: str, value: str, secret: bool) -> None:
    assert secrets_of({name: value}) == ([value] if secret else [])


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = {"conn_type": "iceberg", "host": "https://lake/api", "login": "me", "password": "hidden-word"}
    found = {
        "LOGYARD_DEFAULT": {"conn_type": "logyard", "host": "a:1"},
        "SPARK_DEFAULT": {"conn_type": "spark", "host": "local[*]"},
        "CATALOG": {**catalog, "extra": {"warehouse": "yard"}},
    }
    for name, row in found.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(row))


@pytest.mark.usefixtures("connections")
def test_a_catalogs_properties_go_by_a_private_file(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def look(operator: Any, ctx: Any) -> None:
        arguments = operator.application_args
        path = Path(arguments[arguments.index("--catalog") + 1])
        seen.update(json.loads(path.read_text()), mode=path.stat().st_mode & 0o777)
        said = [*arguments, *map(str, operator.conf.values()), *operator.env_vars.values()]
        seen["said"] = " ".join([*said, *(str(getattr(operator, name)) for name in operator.template_fields)])
        Path(arguments[arguments.index("--output") + 1]).write_text("{}")

    monkeypatch.setattr(SparkSubmitOperator, "execute", look)
    given: dict[str, Any] = {"destination": "/x", "table_format": "iceberg", "catalog_conn_id": "catalog"}
    ExportSegmentsOperator(task_id="e", topics=["t"], table="lake.t", **given).execute(context())
    assert (seen["type"], seen["uri"], seen["warehouse"]) == ("rest", "https://lake/api", "yard")
    assert seen["credential"] == "me:hidden-word"
    assert seen["mode"] == 0o600
    assert "hidden-word" not in seen["said"]
    assert "--table lake.t" in seen["said"]


@pytest.mark.usefixtures("connections")
def test_a_table_needs_its_catalog() -> None:
    with pytest.raises(AirflowFailException, match="needs both table and catalog_conn_id"):
        ExportSegmentsOperator(task_id="e", topics=["t"], destination="/x", table="lake.t").execute(context())
