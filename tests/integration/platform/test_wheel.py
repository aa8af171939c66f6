"""The wheel in an Airflow that has `operators/`, `plugins/` and `dags/` of its own: neither hides the other.

The environment has what the lock names and nothing of the checkout: its packages are linked from the one that runs the
tests, all but this project, which is installed from the wheel by pip.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from logyard.local.airflow.dag_files import DAGS

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.airflow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ("logyard", "broker", "operators", "plugins", "dags", "spark_jobs", "pyproject.toml", "README.md", "LICENSE")
THEIRS = {
    "operators/__init__.py": "",
    "operators/my_op.py": """
from airflow.sdk import BaseOperator

class MyOperator(BaseOperator):
    def execute(self, context):
        return "mine"
""",
    "plugins/__init__.py": "",
    "plugins/my_plugin.py": """
from airflow.plugins_manager import AirflowPlugin

class MyPlugin(AirflowPlugin):
    name = "mine"
""",
    "dags/__init__.py": "",
    "dags/common.py": "OWNER = 'me'\n",
    "dags/own.py": '''
"""Theirs and ours in one DAG of airflow."""

from airflow.sdk import DAG

import dags.common
import operators
import plugins.my_plugin
from logyard.operators.topics import CreateTopicOperator
from operators.my_op import MyOperator

with DAG(dag_id="own", schedule=None, default_args={"owner": dags.common.OWNER}):
    MyOperator(task_id="mine") >> CreateTopicOperator(task_id="theirs", topic="t", partitions=1)
''',
}


@dataclass(frozen=True, slots=True)
class Deployment:
    """Somebody's Airflow: an environment of its own, and a home."""

    venv: Path
    home: Path

    def run(self, program: str, *arguments: str) -> str:
        """What a program of the environment prints, run from outside of the checkout."""
        env = {
            name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTHON", "VIRTUAL"))
        }
        env |= {
            "PYTHONPATH": str(self.home),  # so that `operators.my_op` is found, as such deployments do it
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        }
        command = [str(self.venv / "bin" / "python"), "-m", program, *arguments]
        if program == "logyard":
            command = [str(self.venv / "bin" / "logyard"), *arguments]
        done = subprocess.run(command, cwd=self.home, env=env, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def listed(self, *arguments: str) -> list[dict[str, Any]]:
        """What a command of Airflow lists; it may log before it prints."""
        printed = self.run("airflow", *arguments, "--output", "json")
        found: list[dict[str, Any]] = json.loads(printed[printed.index("\n[") if "\n[" in printed else 0 :])
        return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, since building writes beside the sources."""
    copy = tmp_path_factory.mktemp("sources")
    ignored = shutil.ignore_patterns("__pycache__")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy2(ROOT / name, copy / name)
    build = "from setuptools import build_meta; build_meta.build_wheel('built')"
    subprocess.run([sys.executable, "-c", build], cwd=copy, check=True, capture_output=True, timeout=240)
    (made,) = (copy / "built").glob("*.whl")
    return made


@pytest.fixture(scope="module")
def deployment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    made = Deployment(tmp_path_factory.mktemp("venv"), tmp_path_factory.mktemp("home"))
    subprocess.run([sys.executable, "-m", "venv", str(made.venv)], check=True, capture_output=True, timeout=240)
    (packages,) = made.venv.glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        ours = entry.name.startswith(("__editable__", "logyard"))
        if not ours and not (packages / entry.name).exists():
            (packages / entry.name).symlink_to(entry)
    made.run("pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", str(wheel))
    for name, text in THEIRS.items():
        (made.home / name).parent.mkdir(exist_ok=True)
        (made.home / name).write_text(text)
    made.run("logyard", "airflow", "install-dags", str(made.home / "dags"))
    made.run("airflow", "db", "migrate")
    made.run("airflow", "dags", "reserialize")
    return made


def test_the_wheel_has_one_name_at_the_top(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"logyard"}
    for needed in (
        "logyard/broker/components.py",
        "logyard/operators/topics.py",
        "logyard/plugins/logyard_ui/static/page.js",
        "logyard/dags/factories/create_topic.py",
        "logyard/spark_jobs/compact.py",
        "logyard/spark_jobs/compact/job.py",
    ):
        assert needed in names, needed
    assert not [name for name in names if "__pycache__" in name or name.startswith("logyard/tests")]


def test_theirs_and_ours_are_found_side_by_side(deployment: Deployment) -> None:
    assert deployment.listed("dags", "list-import-errors") == []
    dags = {entry["dag_id"] for entry in deployment.listed("dags", "list")}
    assert dags == {"own", *(f"logyard_{dag}" for dag in DAGS)}
    plugins = {entry["name"] for entry in deployment.listed("plugins")}
    assert {"mine", "logyard"} <= plugins
    providers = {entry["package_name"]: entry["version"] for entry in deployment.listed("providers", "list")}
    assert providers["logyard"] == "0.1.0"
    where = "import logyard.operators.topics as o, operators.my_op as m; print(o.__file__); print(m.__file__)"
    ours, theirs = _python(deployment, where).split()
    assert Path(ours).is_relative_to(deployment.venv)
    assert Path(theirs).is_relative_to(deployment.home)
    assert deployment.run("airflow", "tasks", "list", "own").split()[-2:] == ["mine", "theirs"]


def _python(deployment: Deployment, text: str) -> str:
    (deployment.home / "asked.py").write_text(text)
    return deployment.run("asked")
