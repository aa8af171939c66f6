"""Three ZooKeeper servers in one ensemble, out of PySpark's jars, on free loopback ports."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logyard.local.ports import free_port
from tests.support.zookeeper import ZooKeeperServer, java, pyspark_jars

_CONFIG = """\
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
tickTime=500
initLimit=20
syncLimit=10
minSessionTimeout=1000
maxSessionTimeout=120000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
"""
READY_S = 60.0


class Ensemble:
    """Servers by number, 1 to 3; each may be killed and started again."""

    def __init__(self, directory: Path, size: int = 3) -> None:
        self._directory = directory
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.ports: dict[int, int] = {}
        drawn: list[int] = []
        for _ in range(3 * size):
            drawn.append(free_port(drawn))
        numbers = iter(drawn)
        servers = [f"server.{n}=127.0.0.1:{next(numbers)}:{next(numbers)}" for n in range(1, size + 1)]
        self.ports = {n: next(numbers) for n in range(1, size + 1)}
        for number, port in self.ports.items():
            home = directory / str(number)
            (home / "data").mkdir(parents=True)
            (home / "data" / "myid").write_text(f"{number}\n")
            config = _CONFIG.format(data=home / "data", port=port) + "\n".join(servers) + "\n"
            (home / "zk.cfg").write_text(config)

    @property
    def connect(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def start(self, *numbers: int) -> None:
        """Start servers and wait until each has its part: leader or follower."""
        for number in numbers:
            home = self._directory / str(number)
            main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
            command = [java(), "-Xmx128m", "-XX:+UseSerialGC", "-cp", f"{pyspark_jars()}/*", main, str(home / "zk.cfg")]
            with (home / "log").open("ab") as log:
                self._processes[number] = subprocess.Popen(command, stdout=log, stderr=log, cwd=home)
        deadline = time.monotonic() + READY_S
        while not all(self.part(number) in ("leader", "follower") for number in numbers):
            if time.monotonic() > deadline:
                raise RuntimeError("\n".join((self._directory / str(n) / "log").read_text()[-1000:] for n in numbers))
            time.sleep(0.1)

    def part(self, number: int) -> str:
        """leader, follower, or "" while it serves nobody."""
        answer = ZooKeeperServer.ask_port(self.ports[number], "srvr")
        return next((line.removeprefix("Mode: ") for line in answer.splitlines() if line.startswith("Mode: ")), "")

    @property
    def leader(self) -> int:
        return next(number for number in self._processes if self.part(number) == "leader")

    def kill(self, number: int) -> None:
        process = self._processes.pop(number)
        process.kill()
        process.wait()

    def close(self) -> None:
        for number in list(self._processes):
            self.kill(number)


@contextmanager
def running_ensemble(directory: Path) -> Iterator[Ensemble]:
    """A started ensemble, ended whatever happens."""
    ensemble = Ensemble(directory)
    try:
        ensemble.start(*ensemble.ports)
        yield ensemble
    finally:
        ensemble.close()
