"""Chooses free ports and records them, so that a name has the same port at each restart.

They are below the range that the kernel uses for outgoing connections, so that no client connection occupies a
broker's port while that broker is down. If another process takes a port between our check and the server's bind, the
server fails to start, and the code that starts it calls `again`.
"""

import random
import socket
from collections.abc import Collection, Mapping
from pathlib import Path

from logyard.local import files
from logyard.local.errors import LocalError

HOST = "127.0.0.1"
LOWEST, HIGHEST = 15_000, 32_000
TRIES = 500


def is_free(port: int, host: str = HOST) -> bool:
    """Whether a server could listen on that port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as servers do: a closed connection is not an obstacle
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def answers(port: int, host: str = HOST, timeout_s: float = 1.0) -> bool:
    """Whether a server listens on that port now."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s):
            return True
    except OSError:
        return False


class Ports:
    """The ports of one directory, by name, kept in its ports.json."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "ports.json"
        self._lock = directory / "ports.lock"

    def known(self) -> Mapping[str, int]:
        return {str(name): int(port) for name, port in files.read_json(self._path, {}).items()}

    def choose(self, name: str, wanted: int | None = None) -> int:
        """Return and record the port of that name: `wanted`, else the recorded one, else a free one.

        The first two are returned even if they are taken: the server reports that at its start, or still runs.
        """
        with files.locked(self._lock):
            known = dict(self.known())
            if wanted is not None:
                known[name] = wanted
            elif name not in known:
                known[name] = free_port(known.values())
            files.write_json(self._path, known)
        return known[name]

    def again(self, name: str) -> int:
        """Choose another port for that name: another process has taken the recorded one."""
        with files.locked(self._lock):
            known = dict(self.known())
            known[name] = free_port(known.values())
            files.write_json(self._path, known)
        return known[name]


def free_port(taken: Collection[int] = ()) -> int:
    """Return a port that nobody listens on and that is not among `taken`. Raises LocalError."""
    for _ in range(TRIES):
        port = random.randrange(LOWEST, HIGHEST)
        if port not in taken and is_free(port):
            return port
    raise LocalError(f"no free port between {LOWEST} and {HIGHEST} on {HOST}: stop something, or give --port-base")
