"""A host for services of docker-compose.yaml without an engine: their commands, with their volumes mounted.

One host, made of namespaces, for all: names lead to itself, nothing outside is reached. Root may have one.
"""

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.support.needed import lacks

NAMES = "127.0.0.1 localhost zookeeper1 zookeeper2 zookeeper3 broker1 broker2 broker3\n"
# A root of its own: everything of the machine's but what containers have for themselves.
SCRIPT = """
set -eu
mount -t tmpfs none "$ROOT"
for path in /*; do
    name=$(basename "$path")
    if [ -L "$path" ]; then cp -P "$path" "$ROOT/"; continue; fi
    case $name in run | lost+found) continue ;; esac
    if [ -d "$path" ]; then mkdir "$ROOT/$name"; mount --rbind "$path" "$ROOT/$name"; fi
done
mkdir "$ROOT/run" "$ROOT/prepare"
mount --bind "$HOSTS" "$ROOT/etc/hosts"
mount -t tmpfs none "$ROOT/var/lib"
ip link set lo up
echo ready
exec sleep infinity
"""


class ServiceHost:
    """Namespaces that live as long as the context. `volumes` has a folder for each volume that a service names."""

    def __init__(self, directory: Path, checkout: Path) -> None:
        needed = [tool for tool in ("unshare", "nsenter", "ip", "mount") if shutil.which(tool) is None]
        if needed or os.geteuid() != 0:
            lacks(f"hosts in namespaces need root and {', '.join(needed) or 'util-linux'}")
        self.volumes = directory / "volumes"
        self._root, self._checkout = directory / "root", checkout
        self._root.mkdir(parents=True)
        (directory / "hosts").write_text(NAMES)
        environment = {**os.environ, "ROOT": str(self._root), "HOSTS": str(directory / "hosts")}
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--net", "--propagation", "private", "sh", "-c", SCRIPT],
            env=environment, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._started: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "ready\n":
            lacks("namespaces cannot be made here")
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            self.kill(process)
        self._holder.kill()
        self._holder.wait()

    def mount(self, service: Mapping[str, Any]) -> None:
        """Mount a service's volumes where it wants them; a volume is made at its first mount, as root's."""
        for volume in service["volumes"]:
            name, place, *_ = volume.split(":")
            folder = self.volumes / name
            folder.mkdir(parents=True, exist_ok=True)
            inside = shlex.quote(self.inside(place))
            self.outside(f"mkdir -p {inside} && mount --bind {shlex.quote(str(folder))} {inside}")

    def inside(self, place: str) -> str:
        """Return where a path of the host is for `outside`."""
        return f"{self._root}{place}"

    def outside(self, script: str) -> None:
        """Run a script of the shell that sees the new root below its folder."""
        subprocess.run([*self._enter(), "sh", "-c", script], check=True)

    def start(self, command: Sequence[str]) -> subprocess.Popen[str]:
        """Start a service's command, as in its image: in the working directory, with our programs on PATH."""
        programs = self._checkout / ".venv" / "bin"
        inside = f"cd {self._checkout} && PATH={programs}:$PATH HOSTNAME=broker1 exec {shlex.join(command)}"
        process = subprocess.Popen(
            [*self._enter(), "chroot", str(self._root), "sh", "-c", inside],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        self._started.append(process)
        return process

    def run(self, command: Sequence[str], timeout_s: float = 60.0) -> tuple[int, str]:
        """Run a command to its end. Returns its exit code, and what it said."""
        process = self.start(command)
        said, _ = process.communicate(timeout=timeout_s)
        return process.returncode, said

    def kill(self, process: subprocess.Popen[str]) -> None:
        """End a command and its children at once."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def _enter(self) -> list[str]:
        return ["nsenter", "--target", str(self._holder.pid), "--mount", "--net"]
