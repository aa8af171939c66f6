"""`logyard up` and `logyard down`: the platform stays when the command is over, and is gone when it is told to."""

import json
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logyard.local.airflow.api import AirflowApi
from logyard.local.identity import is_alive
from logyard.local.platform import Platform
from logyard.local.ports import answers

pytestmark = [pytest.mark.integration, pytest.mark.airflow]

OWN_DAG = """
from airflow.sdk import DAG

dag = DAG(dag_id="mine", schedule=None)
"""


def logyard(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "logyard.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / ".logyard"
    assert logyard("down", "--dir", str(tmp_path / ".logyard")).returncode == 0


CONNECTION = "/api/v2/connections/logyard_default"


def connection_is_shown_and_tested(api: AirflowApi) -> None:
    """What *Admin → Connections* shows and does."""
    shown = api.get(CONNECTION)
    assert (shown["conn_type"], shown["host"].partition(":")[0]) == ("logyard", "127.0.0.1")
    tested = api.send("POST", "/api/v2/connections/test", json={**shown, "connection_id": "tried"}).json()
    assert tested["status"], tested


def what_is_said(up: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Name → value of the lines that `up` prints."""
    assert up.returncode == 0, up.stderr
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in up.stdout.splitlines() if "  " in line)


@pytest.mark.long
def test_an_edited_connection_stays(state: Path) -> None:
    """When the platform is started again, however often."""
    said = what_is_said(logyard("up", "--dir", str(state), "--brokers", "1"))
    with AirflowApi(said["Airflow"], "admin", said["log in as"].rpartition(" ")[2]) as api:
        shown = api.get(CONNECTION)
        again = logyard("up", "--dir", str(state), "--brokers", "1")
        assert (again.returncode, "was edited" in again.stderr) == (0, False), again.stderr
        assert api.get(CONNECTION) == shown
        edited = {**shown, "description": "as I want it"}
        api.send("PATCH", CONNECTION, params={"update_mask": "description"}, json=edited)
        again = logyard("up", "--dir", str(state), "--brokers", "1")
        assert "connection logyard_default was edited" in again.stderr
        assert api.get(CONNECTION) == edited
        # Deleted, it is made anew.
        api.send("DELETE", CONNECTION)
        assert logyard("up", "--dir", str(state), "--brokers", "1").returncode == 0
        assert api.get(CONNECTION) == shown


def test_up_and_down(state: Path) -> None:
    up = logyard("up", "--dir", str(state), "--brokers", "1")
    said = what_is_said(up)
    password = re.fullmatch(r"admin, password (\S+)", said["log in as"])
    assert password is not None

    assert said["the cluster's page"] == f"{said['Airflow']}/plugin/logyard"

    platform = Platform(state / "up")
    passwords = platform.airflow.home.passwords
    assert stat.S_IMODE(passwords.stat().st_mode) == 0o600
    assert json.loads(passwords.read_text())["admin"] == password.group(1)
    with AirflowApi(said["Airflow"], "admin", password.group(1)) as api:
        assert set(api.health().values()) == {"healthy"}
        api.wait_dag("logyard_create_topic", 90)
        assert api.import_errors() == []
        assert api.plugin_import_errors() == []
        connection_is_shown_and_tested(api)
        own = state.parent / "my-dags"
        assert said["your DAGs"] == str(own)
        (own / "mine.py").write_text(OWN_DAG)
        api.wait_dag("mine", 60)
        assert api.get("/api/v2/dags/mine")["bundle_name"] == "own-dags"
        api.run_dag("logyard_create_topic", {"topic": "made-in-airflow", "partitions": 1, "replication_factor": 1}, 120)
    listed = logyard("topics", "list", "--bootstrap-server", said["bootstrap servers"])
    assert "made-in-airflow" in listed.stdout.splitlines()

    tables = (platform.cluster.processes, platform.airflow.processes)
    running = [entry.identity for table in tables for entry in table.entries().values()]
    assert len(running) == 6
    assert all(found and is_alive(found) for found in running)
    ports = [int(part) for part in re.findall(r"127\.0\.0\.1:(\d+)", up.stdout)]
    assert all(answers(port) for port in ports)

    down = logyard("down", "--dir", str(state))
    assert (down.returncode, down.stdout) == (0, "stopped\n")
    assert not any(found and is_alive(found) for found in running)
    assert not any(answers(port) for port in ports)
    assert logyard("down", "--dir", str(state)).stdout == "nothing ran\n"
