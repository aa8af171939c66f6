"""Workers of a job on this machine are forked from a process that has what the job needs, also after one was killed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.job_process import job_environment

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[3]
LOOKS = """
import json, os, signal, sys
from logyard.spark_jobs import session

mark = sys.argv[1]

def look(number):
    if number and not os.path.exists(mark):
        open(mark, "x").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return sys.orig_argv[1:3], "logyard.spark_jobs.audit.segment" in sys.modules

context = session.start("logyard audit")
print(json.dumps(session.run_each(context, [0, 1], look)))
"""


def looked(tmp_path: Path, *settings: str) -> list[list[object]]:
    script = tmp_path / "looks.py"
    script.write_text(LOOKS)
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2,3]"]
    own = ("spark.ui.enabled=false", "spark.driver.bindAddress=127.0.0.1", "spark.driver.host=127.0.0.1")
    for setting in (*own, *settings):
        command += ["--conf", setting]
    done = subprocess.run(
        [*command, str(script), str(tmp_path / "killed")],
        env=os.environ | job_environment(ROOT / ".numba_cache"),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "killed").exists()
    return list(json.loads(done.stdout.strip().splitlines()[-1]))


def test_workers_have_what_the_job_needs(tmp_path: Path) -> None:
    assert looked(tmp_path) == [[["-m", "logyard.spark_jobs.waiting_daemon"], True]] * 2


@pytest.mark.long
def test_a_daemon_that_was_chosen_stays(tmp_path: Path) -> None:
    assert looked(tmp_path, "spark.python.daemon.module=pyspark.daemon") == [[["-m", "pyspark.daemon"], False]] * 2
