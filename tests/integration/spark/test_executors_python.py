"""A job whose executors have no Python that can do its work: one line says what is wrong, before anything is read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.export_runs import Flights, pairs
from tests.support.job_process import all_gone
from tests.support.real_cluster import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    flights = Flights(tmp_path)
    flights.grow(pairs(20))
    return flights.log


def said_of(python: Path, log: Path) -> str:
    """Audit a directory with that Python for the executors, which has to fail and to leave no process; returns the
    job's last line."""
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[1]"]
    for setting in ("spark.ui.enabled=false", "spark.driver.bindAddress=127.0.0.1", "spark.driver.host=127.0.0.1"):
        command += ["--conf", setting]
    command += [str(ROOT / "spark_jobs" / "audit.py"), "--log-dir", f"1={log}", "--topic", "t"]
    own = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    # Elsewhere than in a checkout, whose folder Python would look into.
    running = subprocess.Popen(
        command,
        env=os.environ | own,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=log.parent,
        start_new_session=True,
    )
    out, err = running.communicate(timeout=250)
    assert running.returncode == 1, err[-3000:]
    eventually(lambda: all_gone(running), "no process is left", 60)
    return out.strip().splitlines()[-1]


def script(place: Path, text: str) -> Path:
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(0o755)
    return place


@pytest.mark.long
def test_there_is_none(log: Path, tmp_path: Path) -> None:
    line = said_of(tmp_path / "python", log)
    assert line.startswith(f'audit.py: executors cannot run their Python: Cannot run program "{tmp_path}/python"')
    assert line.endswith("(spark.pyspark.python, PYSPARK_PYTHON)")


def test_it_has_no_logyard(log: Path, tmp_path: Path) -> None:
    bare = script(tmp_path / "python", f'exec {sys.executable} -S "$@"')
    line = said_of(bare, log)
    assert line.startswith("audit.py: executors lack logyard, numpy, ")
    assert line.endswith(f"install logyard[spark] in their Python ({bare})")
