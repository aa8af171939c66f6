"""One real ZooKeeper server on loopback, from the jars that PySpark includes."""

import importlib.util
import socket
import time
from pathlib import Path

from logyard.local import files
from logyard.local.errors import LocalError
from logyard.local.java import Java
from logyard.local.ports import HOST, Ports, is_free
from logyard.local.processes import Processes

NAME = "zookeeper"
READY_S = 60.0
PORT_TRIES = 5

_CONFIG = """\
# Written by `logyard cluster start`.
dataDir={data}
clientPort={port}
clientPortAddress={host}
tickTime=1000
minSessionTimeout=2000
maxSessionTimeout=120000
maxClientCnxns=0
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
admin.enableServer=false
4lw.commands.whitelist=srvr,ruok,mntr,stat,cons
"""

_SASL = "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"

# jute.maxbuffer: the largest znode or multi; a reassignment of many partitions is one znode.
_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-Djute.maxbuffer=4194304",
    "-Dzookeeper.preAllocSize=4096",
    "-Djava.net.preferIPv4Stack=true",
)


def jars() -> Path:
    """Return the folder of PySpark's jars. Raises LocalError if PySpark is not installed."""
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise LocalError(
            "PySpark, which includes ZooKeeper, is not installed: install logyard[local], or give --zookeeper"
        )
    return Path(found.submodule_search_locations[0]) / "jars"


def four_letters(port: int, word: str, host: str = HOST, timeout_s: float = 2.0) -> str:
    """Return the server's answer to a four-letter word (`srvr`, `mntr`…); "" if it does not answer."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as link:
            link.sendall(word.encode("ascii"))
            return b"".join(iter(lambda: link.recv(65536), b"")).decode(errors="replace")
    except OSError:
        return ""


def is_ready(port: int) -> bool:
    return "Zookeeper version" in four_letters(port, "srvr")


def start(
    directory: Path,
    processes: Processes,
    ports: Ports,
    java: Java,
    wanted_port: int | None = None,
    jaas: Path | None = None,
) -> int:
    """Start the server of `directory` if it does not run, and wait until it serves. Returns its port.

    `jaas` is a JAAS file with the users that may log in; None: there are none.

    Raises LocalError with the reason if it does not serve in time.
    """
    if processes.alive(NAME):
        port = ports.choose(NAME)
        _wait_ready(port, processes)
        return port
    for _ in range(PORT_TRIES):
        port = ports.choose(NAME, wanted_port)
        if is_free(port):
            processes.start(NAME, _command(directory, port, java, jaas), environment=java.environment())
            if _wait_ready(port, processes):
                return port
            processes.stop(NAME)
        if wanted_port is not None:
            raise LocalError(f"port {wanted_port} for ZooKeeper is taken: choose another --port-base")
        ports.again(NAME)
    raise LocalError("ZooKeeper found no port that stays free: stop whatever takes ports on this machine")


def _command(directory: Path, port: int, java: Java, jaas: Path | None) -> list[str]:
    home = directory / "zookeeper"
    (home / "data").mkdir(parents=True, exist_ok=True)
    config = home / "zoo.cfg"
    text = _CONFIG.format(data=home / "data", port=port, host=HOST)
    files.write_text(config, text + (_SASL if jaas is not None else ""))
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    users = [f"-Djava.security.auth.login.config={jaas}"] if jaas is not None else []
    return [str(java.binary), *_OPTIONS, *users, "-cp", f"{jars()}/*", main, str(config)]


def _wait_ready(port: int, processes: Processes) -> bool:
    """Return True once it serves, False if another process has its port. Raises LocalError if it ends otherwise."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        # Check that ours is alive first: another ZooKeeper may have taken the port and answer.
        if not processes.alive(NAME):
            if not is_free(port):
                return False
            raise LocalError(processes.failure(NAME))
        if is_ready(port) and processes.alive(NAME):
            return True
        time.sleep(0.1)
    raise LocalError(
        f"ZooKeeper does not answer on {HOST}:{port} after {READY_S:.0f} s: see {processes.logs}/{NAME}.log"
    )
