"""docker-compose.yaml as it is, up under podman-compose, with what a script on the machine outside does to it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Self

import yaml

from logyard.local.errors import LocalError
from tests.compose.images import ROOT, STORE, Podman

PROJECT = "logyard-compose-test"
# The compose file in a folder of its own, so that no folder my-dags of the user's is taken.
FOLDER = STORE / "project"
OWN_DAG = """
from airflow.sdk import dag, task


@dag(schedule=None)
def of_the_user() -> None:
    @task
    def host() -> str:
        import socket

        print("said by the user's task")
        return socket.gethostname()

    host()


of_the_user()
"""
TOOL = "podman-compose==1.6.0"
COMPLETED = "service_completed_successfully"
UI = "http://127.0.0.1:8080"
BOOTSTRAP = "127.0.0.1:19092,127.0.0.1:19093,127.0.0.1:19094"


class Composed:
    """The services of docker-compose.yaml; they end, and their volumes go, with the context.

    :param only: these services alone.
    :param changes: what is different of a service, as a second compose file has it.
    :param folders: volumes that are folders of this machine.
    """

    def __init__(
        self,
        podman: Podman,
        only: Collection[str] = (),
        changes: Mapping[str, Mapping[str, Any]] | None = None,
        folders: Mapping[str, Path] | None = None,
    ) -> None:
        self.podman = podman
        self._tool = _tool()
        self._only = frozenset(only) or services().keys()
        self._changes = changes
        self._folders = folders or {}

    @property
    def files(self) -> list[str]:
        """The words that name the compose files."""
        second = ["--file", str(FOLDER / "changes.yaml")] if self._changes else []
        return ["--file", str(FOLDER / "docker-compose.yaml"), *second]

    def __enter__(self) -> Self:
        own_dags = FOLDER / "my-dags"
        own_dags.mkdir(parents=True, exist_ok=True)
        (own_dags / "of_the_user.py").write_text(OWN_DAG)
        shutil.copy(ROOT / "docker-compose.yaml", FOLDER)
        (FOLDER / "changes.yaml").write_text(yaml.safe_dump({"services": self._changes or {}}))
        self.remove()  # what a run that was killed has left
        try:
            for volume, folder in self._folders.items():
                bound = [word for option in ("type=none", "o=bind", f"device={folder}") for word in ("--opt", option)]
                self.podman.run("volume", "create", *bound, f"{PROJECT}_{volume}")
            self.up()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove the containers and all volumes of the tests' store.

        podman-compose may leave one that was in use, and leaves those without a name, as ZooKeeper's /logs.
        """
        self.compose("down", "--volumes", "--timeout", "5", check=False)
        left = self.podman.run("volume", "ls", "--quiet", "--filter", f"name=^{PROJECT}_").stdout.split()
        if left:
            self.podman.run("volume", "rm", "--force", *left)
        self.podman.run("volume", "prune", "--force")

    def up(self) -> None:
        """Start all services, in the order of their dependencies. Raises LocalError.

        podman 4.3 cannot start a container that needs one which has ended, as `prepare` does. So the conditions of
        `depends_on` are kept here, and podman-compose is told to leave them alone.
        """
        chosen = {name: service for name, service in services().items() if name in self._only}
        needs = {name: _conditions(service.get("depends_on", ())) for name, service in chosen.items()}
        started: set[str] = set()
        while waiting := [name for name in needs if name not in started]:
            ready = [name for name in waiting if needs[name].keys() <= started]
            for name in {one for service in ready for one, how in needs[service].items() if how == COMPLETED}:
                code = int(self.podman.run("wait", container(name), timeout_s=600.0).stdout)
                if code:
                    raise LocalError(f"{name} ended with {code}: {self.logs(name)}")
            self.compose("up", "--detach", "--no-deps", *ready, timeout_s=900.0)
            started |= set(ready)

    def compose(self, *words: str, timeout_s: float = 300.0, check: bool = True) -> str:
        """Run podman-compose on the project. Raises LocalError with what it said."""
        command = [str(self._tool), "--project-name", PROJECT, *self.files, *words]
        done = subprocess.run(
            command, env=self.podman.environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if check and done.returncode:
            raise LocalError(f"podman-compose {words[0]}: {done.stdout[-1500:]}{done.stderr[-1500:]}")
        return done.stdout

    def exec(self, service: str, *command: str, timeout_s: float = 120.0) -> str:
        """Run a command in a service's container. Raises LocalError with what it said."""
        return self.podman.run("exec", container(service), *command, timeout_s=timeout_s).stdout

    def process(self, service: str) -> int:
        """Return the process id, on this machine, of a container's first process; 0 if it does not run."""
        return int(self.podman.run("inspect", "--format", "{{.State.Pid}}", container(service)).stdout)

    def kill(self, *services: str) -> None:
        """End containers at once, as when their hosts lose power, and wait until their restart policy has them back.

        The first process is killed: the engine would take its own command `kill` for the wish that they stay away.
        """
        before = {service: self.process(service) for service in services}
        for process in before.values():
            os.kill(process, signal.SIGKILL)
        for service, process in before.items():
            eventually(lambda: self.process(service) not in (0, process), f"{service} again", 120.0)  # noqa: B023 # asked at once

    def healthy(self, service: str) -> bool:
        """Run the health check of a service once. True for a service that has none."""
        return "healthcheck" not in services()[service] or (
            self.podman.run("healthcheck", "run", container(service), check=False).returncode == 0
        )

    def states(self) -> dict[str, str]:
        """Return the state of each container, by its service."""
        found = json.loads(self.podman.run("ps", "--all", "--format", "json").stdout or "[]")
        label = "io.podman.compose.service"
        return {one["Labels"][label]: one["State"] for one in found if label in (one.get("Labels") or {})}

    def logs(self, service: str, lines: int = 60) -> str:
        done = self.podman.run("logs", "--tail", str(lines), container(service), check=False)
        return done.stdout + done.stderr

    def keep_logs(self, folder: Path) -> None:
        """Write what each container has said last to a file of its own."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for service in self.states():
            (folder / f"{service}.log").write_text(self.logs(service, 5_000))

    def inspected(self, service: str) -> str:
        """Return what the engine tells about a container: command, variables, mounts."""
        return self.podman.run("inspect", container(service)).stdout

    def password(self) -> str:
        """Return the password of Airflow's user, as the compose file says where to find it."""
        said: dict[str, str] = json.loads(self.exec("airflow-api-server", "cat", "/run/airflow/passwords.json"))
        return said["admin"]


def services() -> dict[str, dict[str, Any]]:
    """Return the services of docker-compose.yaml."""
    found: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]
    return found


def container(service: str) -> str:
    return f"{PROJECT}_{service}_1"


def eventually(condition: Callable[[], Any], what: str, timeout_s: float = 120.0) -> Any:
    """Ask until the condition holds, and return what it says. Raises AssertionError with the last error."""
    deadline = time.monotonic() + timeout_s
    while True:
        problem = ""
        try:
            if answer := condition():
                return answer
        except (LocalError, OSError, ValueError) as error:
            problem = str(error)
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:.0f} s; {problem}"
        time.sleep(1)


def _conditions(depends_on: Any) -> dict[str, str]:
    """Return the condition of each dependency; a list has none, and means started."""
    if isinstance(depends_on, dict):
        return {name: about["condition"] for name, about in depends_on.items()}
    return dict.fromkeys(depends_on, "service_started")


def _tool() -> Path:
    """Return podman-compose, installed beside the store if it is not there yet."""
    place = STORE / "podman-compose"
    tool = place / "bin" / "podman-compose"
    if not tool.exists():
        venv.create(place, with_pip=True)
        install = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", TOOL]
        done = subprocess.run(install, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise LocalError(f"{TOOL} could not be installed: {done.stderr[-500:]} ({sys.executable})")
    return tool
