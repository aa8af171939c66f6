"""The wheel in an Airflow that exists, of each version: nothing changes there, and everything of ours is found."""

import json
from pathlib import Path
from typing import Any

import pytest

from logyard.local.airflow.dag_files import DAGS
from tests.matrix import environments
from tests.matrix.environments import ROOT, Environment

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(1500)]

RELEASED = {
    "3.0.0": "2025-04-22",
    "3.0.6": "2025-08-29",
    "3.1.8": "2026-03-11",
    "3.2.2": "2026-05-29",
    "3.3.2": "2026-09-17",
}
# What users have beside Airflow and we use too: its versions are theirs.
NEIGHBOURS = (
    "apache-airflow-providers-apache-kafka",
    "apache-airflow-providers-apache-spark",
    "apache-airflow-providers-openlineage",
    "cryptography",
    "numpy",
    "pandas",
    "pyarrow",
)
SPARK = "tests/unit/operators/test_spark.py"
SHORT = ("3.0.6", "3.11")
CELLS = (
    SHORT,
    ("3.0.0", "3.10"),
    ("3.0.6", "3.12"),
    ("3.1.8", "3.10"),
    ("3.1.8", "3.13"),
    ("3.2.2", "3.12"),
    ("3.3.2", "3.13"),
    ("3.3.2", "3.14"),
)
# They need no cluster and no broker. One keeps an AssetAlias in a dict, which before Airflow 3.2 has no hash.
UNITS = ("tests/unit/operators", "--deselect", f"{SPARK}::test_an_export_is_an_event_of_its_destinations_asset")
# With what a broker needs: the tests use its batches.
TOOLS = ("pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "hypothesis")
BROKERS = ("aiokafka", "cramjam", "crc32c", "pyjwt", "prometheus-client", "starlette", "uvicorn", "uvloop", "zstandard")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(cell, marks=[] if cell == SHORT else [pytest.mark.long], id=f"airflow-{cell[0]}-py{cell[1]}")
        for cell in CELLS
    ],
)
def installed(request: pytest.FixtureRequest) -> Environment:
    version, python = request.param
    return environments.airflow(version, RELEASED[version], python, "airflow-spark", NEIGHBOURS)


@pytest.fixture(scope="module")
def seen(installed: Environment, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("home")
    printed = installed.run(Path(__file__).with_name("inside.py"), home=home)
    told: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
    return told


def test_no_version_that_was_installed_changes(installed: Environment) -> None:
    assert installed.before - installed.packages() == frozenset()
    added = {line.partition("==")[0] for line in installed.packages() - installed.before}
    assert added <= {"kafka-python", "kazoo", "aiokafka", "async-timeout", "cramjam", "crc32c", "zstandard"}


def test_every_module_is_imported(seen: dict[str, Any]) -> None:
    assert seen["failed"] == []
    assert seen["modules"] > 200


def test_every_dag_is_parsed(seen: dict[str, Any]) -> None:
    assert seen["errors"] == {}
    assert set(seen["dags"]) == {f"logyard_{dag}" for dag in DAGS}


def test_plugin_and_provider_are_registered(seen: dict[str, Any]) -> None:
    assert "logyard" in seen["plugins"]
    assert seen["provider"] == {
        "version": "0.1.0",
        "name": "Logyard",
        "description": "Operate partitioned logs (Logyard and Apache Kafka clusters) from Airflow.",
        "hook": "Logyard",
    }


def test_units_of_operators_hold(installed: Environment, tmp_path: Path) -> None:
    """With this checkout's sources, which are those of the wheel; the last test, since it installs what tests need.

    Not on 3.0 and not on Python 3.10: some of these tests themselves use approvals, and `asyncio.timeout`.
    """
    if installed.directory.name.startswith("airflow-3.0") or installed.directory.name.endswith("py3.10"):
        pytest.skip("tests of operators use what came with Airflow 3.1 and Python 3.11")
    installed.install(*TOOLS, *BROKERS)
    installed.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *UNITS, home=tmp_path, folder=ROOT, timeout_s=1200)
