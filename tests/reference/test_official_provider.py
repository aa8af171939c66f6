"""The table of docs/airflow.md beside Airflow's own Kafka provider: everything that it offers is named there."""

import ast
import re
import shutil
from pathlib import Path

import pytest

from tests.support import references
from tests.support.needed import OWN_UV, fetched, lacks, run

VERSION = "2.1.0"
CACHE = references.ROOT / ".logyard" / "reference" / f"airflow-kafka-provider-{VERSION}"
PARTS = ("operators", "hooks", "sensors", "triggers", "queues")
# What only others of them use: no DAG names them.
INNER = {"KafkaAuthenticationError", "KafkaBrokerPayload", "KafkaSharedStreamProducer"}


@pytest.fixture(scope="module")
def provider() -> Path:
    uv = shutil.which("uv") or str(OWN_UV)
    if not Path(uv).exists():
        lacks("uv is missing: make setup brings it")
    wanted = f"apache-airflow-providers-apache-kafka=={VERSION}"
    python = str(references.ROOT / ".venv" / "bin" / "python")

    def install(aside: Path) -> None:
        run([uv, "pip", "install", "-q", "--python", python, "--no-deps", "--target", str(aside), wanted], wanted)

    return fetched(CACHE, install) / "airflow" / "providers" / "apache" / "kafka"


def test_nothing_of_it_is_missing_in_the_table(provider: Path) -> None:
    text = (references.ROOT / "docs" / "airflow.md").read_text()
    section = text.partition("## Beside Airflow's own Kafka provider")[2].partition("\n## ")[0]
    assert f"`apache-airflow-providers-apache-kafka` {VERSION}" in section
    theirs = " ".join(row.split("|")[1] for row in section.splitlines() if row.startswith("|"))
    named = set(re.findall(r"\w+", theirs))
    offered = {name for part in PARTS for path in (provider / part).glob("*.py") for name in _classes(path)}
    assert len(offered) > 10
    assert offered - INNER - named == set()
    assert {"kafka_event_producer", "create_topic", "delete_topic"} <= named


def test_every_argument_of_its_operators_is_told(provider: Path) -> None:
    """Arguments that ours take by the same name, or that the second table translates."""
    text = (references.ROOT / "docs" / "airflow.md").read_text()
    section = text.partition("## Beside Airflow's own Kafka provider")[2].partition("\n## ")[0]
    told = set(re.findall(r"\w+", section))
    files = [provider / "operators" / "consume.py", provider / "operators" / "produce.py"]
    arguments = {name for path in (*files, provider / "sensors" / "kafka.py") for name in _arguments(path)}
    ours = {"topics", "topic", "self", "kwargs"}
    # Each "X, and its args and kwargs" of the table.
    derived = {f"{name}_{more}" for name in told for more in ("args", "kwargs")}
    assert {name for name in arguments if name not in told | ours | derived} == set()


def _classes(path: Path) -> list[str]:
    return [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]


def _arguments(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            found |= {one.arg for one in (*node.args.args, *node.args.kwonlyargs)}
    return found
