"""docker-compose.yaml as it is, up under podman-compose, with what a script on the machine outside does to it."""

import json
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import yaml

from logyard.local.errors import LocalError
from tests.compose.images import ROOT, STORE, Podman

PROJECT = "logyard-compose-test"
TOOL = "podman-compose==1.6.0"
COMPLETED = "service_completed_successfully"
UI = "http://127.0.0.1:8080"
BOOTSTRAP = "127.0.0.1:19092,127.0.0.1:19093,127.0.0.1:19094"


class Composed:
    """The services of docker-compose.yaml; they end, and their volumes go, with the context."""

    def __init__(self, podman: Podman) -> None:
        self.podman = podman
        self._tool = _tool()

    def __enter__(self) -> Self:
        self.down()  # of a run that was killed
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def down(self) -> None:
        """Remove the containers and every volume of the project: podman-compose may leave one that was in use."""
        self.compose("down", "--volumes", "--timeout", "5", check=False)
        left = self.podman.run("volume", "ls", "--quiet", "--filter", f"name=^{PROJECT}_").stdout.split()
        if left:
            self.podman.run("volume", "rm", "--force", *left)

    def up(self) -> None:
        """Start all services, in the order of their dependencies. Raises LocalError.

        podman 4.3 cannot start a container that needs one which has ended, as `prepare` does. So the conditions of
        `depends_on` are kept here, and podman-compose is told to leave them alone.
        """
        services = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]
        needs = {name: _conditions(service.get("depends_on", ())) for name, service in services.items()}
        started: set[str] = set()
        while waiting := [name for name in services if name not in started]:
            ready = [name for name in waiting if needs[name].keys() <= started]
            for name in {one for service in ready for one, how in needs[service].items() if how == COMPLETED}:
                code = int(self.podman.run("wait", container(name)).stdout)
                if code:
                    raise LocalError(f"{name} ended with {code}: {self.logs(name)}")
            self.compose("up", "--detach", "--no-deps", *ready, timeout_s=900.0)
            started |= set(ready)

    def compose(self, *words: str, timeout_s: float = 300.0, check: bool = True) -> str:
        """Run podman-compose on the project. Raises LocalError with what it said."""
        command = [str(self._tool), "--project-name", PROJECT, "--file", str(ROOT / "docker-compose.yaml"), *words]
        done = subprocess.run(
            command, env=self.podman.environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if check and done.returncode:
            raise LocalError(f"podman-compose {words[0]}: {done.stdout[-1500:]}{done.stderr[-1500:]}")
        return done.stdout

    def exec(self, service: str, *command: str, timeout_s: float = 120.0) -> str:
        """Run a command in a service's container. Raises LocalError with what it said."""
        return self.podman.run("exec", container(service), *command, timeout_s=timeout_s).stdout

    def kill(self, service: str) -> None:
        """End a container at once, as when its host loses power."""
        self.podman.run("kill", "--signal", "KILL", container(service))

    def start(self, service: str) -> None:
        self.podman.run("start", container(service))

    def states(self) -> dict[str, str]:
        """Return the state of each container, by its service."""
        found = json.loads(self.podman.run("ps", "--all", "--format", "json").stdout or "[]")
        label = "io.podman.compose.service"
        return {one["Labels"][label]: one["State"] for one in found if label in (one.get("Labels") or {})}

    def logs(self, service: str, lines: int = 60) -> str:
        done = self.podman.run("logs", "--tail", str(lines), container(service), check=False)
        return done.stdout + done.stderr

    def password(self) -> str:
        """Return the password of Airflow's user, as the compose file says where to find it."""
        said: dict[str, str] = json.loads(self.exec("airflow-api-server", "cat", "/run/airflow/passwords.json"))
        return said["admin"]


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
