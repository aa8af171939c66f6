"""A standalone Spark cluster on loopback: a master, and a worker of one core on each of the given hosts.

Spark runs a second attempt of a task only on another host than the first one's: 127.0.0.1 and 127.0.0.2 are two.
"""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import pyspark

from logyard.local import ports
from logyard.local.java import find_java
from logyard.local.ports import free_port

DEPLOY = "org.apache.spark.deploy"


class StandaloneSpark:
    """`environment` is that of master and workers, and may be changed before they are started."""

    def __init__(self, directory: Path, hosts: Sequence[str] = ("127.0.0.1", "127.0.0.1")) -> None:
        self.directory, self._hosts = directory, hosts
        self._processes: list[subprocess.Popen[bytes]] = []
        java = find_java(directory / "java").environment(dict(os.environ))
        self.environment = java | {
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(directory / "work"),
            "SPARK_DAEMON_MEMORY": "256m",
        }
        self.port = free_port()
        self.master = f"spark://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._start("master", self.spark_class("master.Master", "127.0.0.1", "--port", str(self.port)))
        wait_for("the master", lambda: ports.answers(self.port))
        for number, host in enumerate(self._hosts, start=1):
            words = self.spark_class("worker.Worker", host, "--cores", "1", "--memory", "1500m", self.master)
            self._start(f"worker{number}", self.worker_command(words))
        log = self.directory / "master.log"
        wait_for("the workers", lambda: log.read_text().count("Registering worker") == len(self._hosts))
        return self

    def spark_class(self, name: str, host: str, *words: str) -> list[str]:
        script = str(Path(self.environment["SPARK_HOME"]) / "bin" / "spark-class")
        return [script, f"{DEPLOY}.{name}", "--host", host, "--webui-port", str(free_port()), *words]

    def worker_command(self, words: list[str]) -> list[str]:
        """Return what starts a worker; for those who want it wrapped."""
        return words

    def _start(self, name: str, command: Sequence[str]) -> None:
        with (self.directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, cwd=self.directory, start_new_session=True
            )
        self._processes.append(process)

    def __exit__(self, *failure: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(30)


def wait_for(what: str, look: Callable[[], object], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not look():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:.0f} s"
        time.sleep(0.2)
