"""A standalone Spark over hosts of their own (hosts.py), and our operators on another, as Airflow's worker runs them.

with SparkOnHosts(hosts, "master", ("worker1", "worker2")) as spark:
    spark.start()
    result = spark.run_operator(hosts["airflow"], "audit", {"topics": ["t"]}, connection, deploy_mode="cluster")
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pyspark

from tests.support.hosts import Host, Hosts
from tests.support.real_cluster import eventually
from tests.support.zookeeper import QUICK_JAVA, java

ROOT = Path(__file__).resolve().parents[2]
PORT = 7077
SCRIPT = ROOT / "tests" / "support" / "operator_on_host.py"
DEPLOY = "org.apache.spark.deploy"
# One executor on each of two workers.
SETTINGS = {
    "spark.executor.memory": "1g",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.driver.memory": "700m",
}


class SparkOnHosts:
    """A master, and a worker of one core and 2 GB on each of the other hosts; they end with their hosts."""

    def __init__(self, hosts: Hosts, master: str, workers: Sequence[str]) -> None:
        self._master = hosts[master]
        self.workers: list[Host] = [hosts[name] for name in workers]
        self.master = f"spark://{master}:{PORT}"
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        # Airflow's provider asks the REST side how a driver in the cluster is.
        rest = "-Dspark.master.rest.enabled=true -Dspark.master.rest.host=0.0.0.0"
        options = {"SPARK_MASTER_OPTS": rest}
        words = _class("master.Master", "--host", self._master.name, "--port", str(PORT))
        self._master.start("master", words, _environment(self._master) | options)
        eventually(lambda: "I have been elected leader" in self._master.log("master"), "Spark's master", 60)
        for host in self.workers:
            self.start_worker(host)
        known = "Registering worker"
        eventually(lambda: self._master.log("master").count(known) == len(self.workers), "Spark's workers", 60)

    def start_worker(self, host: Host) -> None:
        """Start it, also again after it was killed."""
        words = _class("worker.Worker", "--host", host.name, "--cores", "2", "--memory", "2g", self.master)
        self._started[host.name] = host.start("worker", words, _environment(host))

    def kill_worker(self, host: Host) -> None:
        """Kill the worker's process alone: what it has started finds out by itself."""
        self._started[host.name].kill()
        self._started[host.name].wait()

    def driver(self) -> tuple[Host, psutil.Process]:
        """Return the worker's host and the process of the one driver that runs inside the cluster."""
        found = [
            (host, process) for process in psutil.process_iter() for host in self.workers if _is_driver(process, host)
        ]
        assert len(found) == 1, found
        return found[0]

    def run_operator(
        self,
        host: Host,
        job: str,
        arguments: Mapping[str, Any],
        connection: Mapping[str, Any],
        deploy_mode: str = "client",
    ) -> dict[str, Any]:
        """Run a Spark operator of ours on that host, and return its result."""
        said = self.operator(host, job, arguments, connection, {"deploy-mode": deploy_mode})
        assert said.returncode == 0, f"{job}: {said.stdout[-6000:]}\n{said.stderr[-6000:]}"
        return dict(json.loads(said.stdout.strip().splitlines()[-1]))

    def operator(
        self,
        host: Host,
        job: str,
        arguments: Mapping[str, Any],
        connection: Mapping[str, Any],
        extra: Mapping[str, Any],
        timeout_s: float = 400,
    ) -> "subprocess.CompletedProcess[str]":
        """Run it to its end, whatever that is; `extra` is of the Spark connection."""
        spark = {"conn_type": "spark", "host": self.master, "extra": dict(extra)}
        environment = _environment(host) | {
            "AIRFLOW_HOME": str(host.directory / "airflow"),
            "AIRFLOW_CONN_LOGYARD_DEFAULT": json.dumps(connection),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(spark),
            "AIRFLOW__LOGYARD__SPARK_SETTINGS": json.dumps(SETTINGS),
            "PYTHONPATH": str(ROOT),
        }
        words = [sys.executable, "-P", str(SCRIPT), job, json.dumps(arguments)]
        return host.run(words, environment, timeout_s, ok=False)

    def of_drivers(self, name: str) -> list[str]:
        """Return what the drivers inside the cluster said on `stdout` or `stderr`, in the order of their submission."""
        found = [path for host in self.workers for path in host.directory.glob(f"work/driver-*/{name}")]
        return [path.read_text(errors="replace") for path in sorted(found, key=lambda path: path.parent.name)]


def _is_driver(process: psutil.Process, host: Host) -> bool:
    try:
        words = process.cmdline()
    except psutil.Error:  # it has ended meanwhile
        return False
    return f"{DEPLOY}.worker.DriverWrapper" in words and str(host.directory / "work") in " ".join(words)


def _class(name: str, *words: str) -> list[str]:
    return [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), f"{DEPLOY}.{name}", *words]


def _environment(host: Host) -> dict[str, str]:
    """What a host's processes have: nothing of the test's own environment but where programs are, and their loops once
    they are compiled."""
    kernels = {name: os.environ[name] for name in ("NUMBA_CACHE_DIR",) if name in os.environ}
    return kernels | {
        "HOME": str(host.directory),
        "JAVA_HOME": str(Path(java()).resolve().parents[1]),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "JDK_JAVA_OPTIONS": QUICK_JAVA,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_DIRS": str(host.directory / "local"),
        "SPARK_WORKER_DIR": str(host.directory / "work"),
    }
