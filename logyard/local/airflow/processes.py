"""Starts and stops Apache Airflow on loopback: database, api-server, scheduler, dag-processor and triggerer.

It does not use `airflow standalone`, which leaves child processes behind, and opens log servers on all interfaces.
"""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx

from logyard.local.airflow import stored_connections
from logyard.local.airflow.settings import Home, environment
from logyard.local.errors import LocalError
from logyard.local.java import Java
from logyard.local.ports import HOST, Ports, is_free
from logyard.local.processes import Processes, Say

COMPONENTS: Mapping[str, tuple[str, ...]] = {
    "api-server": ("api-server",),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
HEALTH = ("metadatabase", "scheduler", "dag_processor", "triggerer")
PREPARED_S = 180.0
READY_S = 180.0
# The scheduler waits long for its idle workers; stopping it sooner loses nothing.
STOP_S = 4.0
PORT_TRIES = 5


class Airflow:
    """The Airflow of one directory. Its methods raise LocalError, whose text is one line that says what to do."""

    def __init__(
        self,
        directory: Path,
        say: Say = lambda text: None,
        kernels: Path | None = None,
        own_dags: Path | None = None,
    ) -> None:
        """`own_dags`: a folder of DAGs that Airflow reads beside the packaged ones."""
        self.directory = directory.absolute()
        self.home = Home(self.directory / "home", kernels or self.directory / "kernels", own_dags)
        self.processes = Processes(self.directory)
        self._ports = Ports(self.directory)
        self._say = say

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._ports.choose('api-server')}"

    def prepare(self, java: Java) -> None:
        """Create passwords, keys and the database: everything that does not need the cluster's addresses."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.home.prepare()
        self._say("preparing Airflow's database")
        self._complete("db-migrate", _airflow("db", "migrate"), self._environment({}, java))

    def start(self, variables: Mapping[str, str], java: Java) -> None:
        """Start the four components (after `prepare`) and wait until each reports that it is healthy.

        `variables` are those of `settings.connections`. The connections among them are written into Airflow's database
        instead, where a person can see and edit them: a variable would take precedence over what was edited.
        """
        self._say("starting Airflow")
        wanted = {name: text for name, text in variables.items() if name.startswith(stored_connections.PREFIX)}
        settings = {name: text for name, text in variables.items() if name not in wanted}
        if wanted:
            program = [sys.executable, "-m", stored_connections.__name__]
            self._complete("connections", program, {**self._environment(settings, java), **wanted})
            for conn_id in stored_connections.edited_ids(self.home.directory):
                self._say(
                    f"connection {conn_id} was edited and stays as it is; deleted, it is made anew at the next start"
                )
        for _ in range(PORT_TRIES):
            port = self._ports.choose("api-server")
            if is_free(port) or self.processes.alive("api-server"):
                for name, arguments in COMPONENTS.items():
                    if not self.processes.alive(name):
                        environment = self._environment(settings, java)
                        self.processes.start(name, _airflow(*arguments), environment=environment, cwd=self.directory)
                if self._await_health(port):
                    return
                self.processes.stop_together(COMPONENTS, grace_s=STOP_S)  # all of them were configured with that port
            self._ports.again("api-server")
        raise LocalError(
            "Airflow's api-server found no port that stays free: stop whatever takes ports on this machine"
        )

    def stop(self, grace_s: float = STOP_S) -> bool:
        """Stop all components and their tasks. Returns False if nothing ran."""
        return self.processes.stop_together(list(self.processes.entries()), grace_s=grace_s)

    def health(self, timeout_s: float = 5.0) -> dict[str, str]:
        """Return each component's health as Airflow reports it; empty if the api-server does not answer."""
        try:
            answer = httpx.get(f"{self.url}/api/v2/monitor/health", timeout=timeout_s, trust_env=False).json()
        except (httpx.HTTPError, ValueError):
            return {}
        return {name: str((answer.get(name) or {}).get("status")) for name in HEALTH}

    def _await_health(self, port: int) -> bool:
        """Return True if all are healthy, False if another process has the api-server's port; else raise LocalError."""
        deadline = time.monotonic() + READY_S
        ill: list[str] = []
        while time.monotonic() < deadline:
            for name in COMPONENTS:
                if not self.processes.alive(name):
                    if name == "api-server" and not is_free(port):
                        return False
                    raise LocalError(f"Airflow's {self.processes.failure(name)}")
            found = self.health()
            before, ill = ill, [name for name in HEALTH if found.get(name) != "healthy"]
            if not ill:
                return True
            if ill != before:
                self._say(f"waiting for Airflow: {', '.join(ill)}")
            time.sleep(0.5)
        raise LocalError(f"Airflow's {', '.join(ill)} is not healthy after {READY_S:.0f} s: see {self.processes.logs}")

    def _complete(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Run a command to its end. It is recorded as a process, so that nothing keeps running after an interrupt."""
        self.processes.start(name, command, environment=environment, cwd=self.directory)
        deadline = time.monotonic() + PREPARED_S
        while self.processes.alive(name):
            if time.monotonic() > deadline:
                self.processes.stop(name)
                raise LocalError(f"Airflow's database is not ready after {PREPARED_S:.0f} s: see {self._log(name)}")
            time.sleep(0.1)
        if self.processes.status(name) != 0:
            raise LocalError(self.processes.failure(name))
        self.processes.stop(name)

    def _environment(self, settings: Mapping[str, str], java: Java) -> dict[str, str]:
        port = self._ports.choose("api-server")
        return environment(self.home, port, settings, java.environment(os.environ))

    def _log(self, name: str) -> Path:
        return self.processes.logs / f"{name}.log"


def _airflow(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "airflow", *arguments]
