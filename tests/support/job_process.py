"""A Spark job as a process of its own that can be made to die at a named point (tests/support/failpoints)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.real_cluster import RealCluster

ROOT = Path(__file__).resolve().parents[2]
FAILPOINTS = Path(__file__).with_name("failpoints")
TTL_S = "5"  # the least there is


def failing(at: str, match: str, mark: Path, *, count: int = 1, do: str = "kill") -> dict[str, str]:
    """The environment of a process that meets a failpoint."""
    point = {"at": at, "match": match, "mark": str(mark), "count": count, "do": do}
    inherited = os.environ.get("PYTHONPATH", "")
    path = str(FAILPOINTS) if not inherited else f"{FAILPOINTS}{os.pathsep}{inherited}"
    return {"LOGYARD_FAILPOINT": json.dumps(point), "PYTHONPATH": path}


def job_environment(kernels: Path) -> dict[str, str]:
    """This process's, for spark-submit in this Python; `kernels`: where compiled ones are kept if nothing says it."""
    binaries = Path(sys.executable).parent
    own = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    own["PATH"] = f"{binaries}{os.pathsep}{os.environ['PATH']}"
    own["NUMBA_CACHE_DIR"] = os.environ.get("NUMBA_CACHE_DIR", str(kernels))
    return os.environ | own


def start_job(
    job: str, cluster: RealCluster, tmp_path: Path, *arguments: str, more: dict[str, str] | None = None
) -> "subprocess.Popen[str]":
    """spark-submit on this machine, in a session of its own; a task may fail twice."""
    binaries = Path(sys.executable).parent
    command = [str(binaries / "spark-submit"), "--master", "local[2,3]", "--conf", "spark.ui.enabled=false"]
    command += ["--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.driver.host=127.0.0.1"]
    command += [str(ROOT / "spark_jobs" / f"{job}.py"), "--bootstrap-server", cluster.bootstrap]
    command += ["--cluster-file", str(cluster.directory / "cluster.json"), "--lease-ttl-s", TTL_S, *arguments]
    return subprocess.Popen(
        command,
        env=job_environment(tmp_path / "numba") | (more or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish_job(running: "subprocess.Popen[str]", *statuses: int) -> dict[str, Any]:
    """Wait for its end with one of these statuses; returns its summary."""
    out, err = running.communicate(timeout=300)
    assert running.returncode in (statuses or (0,)), f"status {running.returncode}: {out[-2000:]}\n{err[-4000:]}"
    return dict(json.loads(out.strip().splitlines()[-1]))


def die_job(running: "subprocess.Popen[str]", mark: Path) -> None:
    """Wait for its end by SIGKILL, at the point that was named."""
    out, err = running.communicate(timeout=300)
    assert mark.exists(), f"the point was never reached: {out[-2000:]}\n{err[-4000:]}"
    assert running.returncode == -9, f"status {running.returncode}: {err[-2000:]}"


def all_gone(running: "subprocess.Popen[str]") -> bool:
    """True if nothing runs any more in the job's session; AssertionError names what does."""
    assert _left_of(running.pid) == []
    return True


def _left_of(session: int) -> list[str]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getsid(int(name)) == session:
                status = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
                found += [Path(f"/proc/{name}/cmdline").read_text()] if status != "Z" else []
        except (ProcessLookupError, FileNotFoundError):
            continue
    return found
