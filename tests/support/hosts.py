"""Hosts of a test's own on this machine: network, name and mounts of their own, connected by a switch. Needs root.

    with Hosts(tmp_path, ("broker1", "spark1")) as hosts:          # skips the test where hosts cannot be made
        hosts["broker1"].start("zookeeper", [java(), …])            # a process of that host, ended with the test
        done = hosts["spark1"].run(["curl", "broker1:9092"])
        hosts["broker1"].directory                                  # a folder that no other host sees

A host is a process that holds its namespaces, and everything is gone when it ends: nothing has a name on this machine.
Hosts find each other by name (/etc/hosts); this machine has an address on the switch too, as one more host (`outside`).
"""

import fcntl
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import IO, Any, Self

from tests.support.needed import lacks

# One of these networks at a time, so that two runs on one machine do not take each other's addresses.
_NETWORKS = [f"10.77.{number}" for number in range(13, 77)]
_TOOLS = ("ip", "nsenter", "unshare")
_HOLD = "echo held; exec sleep infinity"
GRACE_S = 20


class Host:
    """One host: `directory` is its own; what `hidden` names is empty there."""

    def __init__(self, name: str, address: str, directory: Path) -> None:
        self.name, self.address = name, address
        self.directory = directory
        self._holder: subprocess.Popen[str] | None = None
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def pid(self) -> int:
        assert self._holder is not None, "hosts are there in their context"
        return self._holder.pid

    def hold(self) -> None:
        """Make the namespaces, held by a process."""
        self._holder = _held(f"hostname {self.name}; ip link set lo up")

    def settle(self, names: str, hidden: Sequence[Path]) -> None:
        """Give the host its address, the names of the others, and its own view of the files."""
        table = self.directory / "etc-hosts"
        table.write_text(names)
        lines = [f"ip addr add {self.address}/24 dev eth0", "ip link set eth0 up"]
        lines += [f"mount --bind {shlex.quote(str(table))} /etc/hosts"]
        lines += [f"mount -t tmpfs -o size=1m none {shlex.quote(str(path))}" for path in hidden]
        self.run(["sh", "-ec", "\n".join(lines)])

    def command(self, words: Sequence[str]) -> list[str]:
        """Return what runs the words on this host."""
        inside = ["nsenter", "--target", str(self.pid), "--net", "--mount", "--uts"]
        return [*inside, f"--wd={self.directory}", *words]

    def run(
        self,
        words: Sequence[str],
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 300,
        ok: bool = True,
    ) -> "subprocess.CompletedProcess[str]":
        """Run words to their end; fails the test with what they said, unless they may fail."""
        done = subprocess.run(
            self.command(words),
            env=None if environment is None else dict(environment),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0 or not ok, f"{self.name}: {words}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
        return done

    def start(
        self, name: str, words: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        """Start a process that ends with the host; what it says is in NAME.log of the host's folder."""
        with (self.directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                self.command(words),
                env=None if environment is None else dict(environment),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def log(self, name: str) -> str:
        """Return what a started process has said."""
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def end(self) -> None:
        """End what runs here, the last one first, and give the namespaces up."""
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._holder is not None:
            _end(self._holder)


class Hosts:
    """Hosts on one switch. `hidden_from`: folders that some hosts do not see, beside the folders of other hosts."""

    def __init__(
        self, directory: Path, names: Sequence[str], hidden_from: Mapping[Path, Sequence[str]] | None = None
    ) -> None:
        need()
        self._hidden_from = dict(hidden_from or {})
        self._hosts: dict[str, Host] = {}
        self._ended = ExitStack()
        self._network, self._taken = _take_network()
        self._outside = f"{self._network}.1"
        for number, name in enumerate(names, start=11):
            (directory / name).mkdir(parents=True)
            self._hosts[name] = Host(name, f"{self._network}.{number}", directory / name)

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._taken.close)
            switch = _held("ip link add switch type bridge; ip link set switch up; ip link set lo up")
            stack.callback(_end, switch)
            outside = f"logyard{os.getpid() % 100_000}"
            self._plug(switch, 0, f"netns {os.getpid()}", outside)
            stack.callback(_run, f"ip link del {outside}")
            for number, host in enumerate(self._hosts.values(), start=1):
                stack.callback(host.end)
                host.hold()
                self._plug(switch, number, f"netns {host.pid}", "eth0")
                others = [other.directory for other in self._hosts.values() if other is not host]
                host.settle(self._names(), [*others, *self._not_seen_by(host)])
            _run(f"ip addr add {self._outside}/24 dev {outside}")
            _run(f"ip link set {outside} up")
            self._ended = stack.pop_all()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._ended.close()

    def _names(self) -> str:
        lines = ["127.0.0.1 localhost", f"{self._outside} outside"]
        return "\n".join([*lines, *(f"{host.address} {host.name}" for host in self._hosts.values())]) + "\n"

    def _not_seen_by(self, host: Host) -> list[Path]:
        return [path for path, names in self._hidden_from.items() if host.name in names]

    @staticmethod
    def _plug(switch: "subprocess.Popen[str]", number: int, where: str, name: str) -> None:
        """Connect a namespace with the switch by a cable."""
        _run(f"ip link add port{number} netns {switch.pid} type veth peer name {name} {where}")
        _run(f"nsenter --target {switch.pid} --net ip link set port{number} master switch up")


@cache
def need() -> None:
    """Skip the test where no hosts can be made; fail it under LOGYARD_REQUIRE."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        lacks(f"hosts of a test's own need {', '.join(missing)} (Debian: iproute2, util-linux)")
    words = ["unshare", "--net", "--mount", "--uts", "ip", "link", "add", "type", "bridge"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        lacks(f"hosts of a test's own need root and network namespaces: {done.stderr.strip()}")


def _take_network() -> tuple[str, IO[str]]:
    """Return the first three numbers of a network's addresses, and the file whose lock keeps others from it."""
    for network in _NETWORKS:
        lock = Path(tempfile.gettempdir(), f"logyard-hosts-{network}").open("w")  # noqa: SIM115, it stays open
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
        else:
            return network, lock
    raise AssertionError("all networks of hosts are taken")


def _held(first: str) -> "subprocess.Popen[str]":
    words = ["unshare", "--net", "--mount", "--uts", "sh", "-ec", f"{first}; {_HOLD}"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None, "it is a pipe"
    assert process.stdout.readline() == "held\n", f"{first}: no namespaces"
    return process


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _run(line: str) -> None:
    subprocess.run(line.split(), check=True, capture_output=True, text=True)
