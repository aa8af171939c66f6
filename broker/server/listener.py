"""The broker's server sockets: bound early so that the address can be registered, served once the broker is ready."""

import asyncio
import itertools
import socket
from collections import Counter

import structlog

from logyard.broker.errors import LogyardError
from logyard.broker.model import Endpoint
from logyard.broker.server.connection import Connection
from logyard.broker.server.dispatch import Dispatcher

BACKLOG = 1024

log = structlog.get_logger("logyard.listener")


class BindFailed(LogyardError):
    """A listener's address cannot be had."""


class Listener:
    """One named listener: its socket, its connections, and how many it may have."""

    _ids = itertools.count(1)

    def __init__(self, endpoint: Endpoint, connections_max: int, per_host_max: int, frame_bytes_max: int) -> None:
        self.name = endpoint.listener
        self._connections_max = connections_max
        self._per_host_max = per_host_max
        self._frame_bytes_max = frame_bytes_max
        self._connections: dict[int, Connection] = {}
        self._per_host: Counter[str] = Counter()
        self._server: asyncio.Server | None = None
        self._socket = _bound(endpoint)
        self.host = endpoint.host
        self.port: int = self._socket.getsockname()[1]

    async def serve(self, dispatcher: Dispatcher) -> None:
        """Begin to accept; connections made since the bind wait in the backlog."""

        def connection() -> Connection:
            return Connection(
                dispatcher,
                dispatcher.may_pipeline,
                self.name,
                next(self._ids),
                self._frame_bytes_max,
                self._opened,
                self._closed,
            )

        self._server = await asyncio.get_running_loop().create_server(connection, sock=self._socket, backlog=BACKLOG)

    async def close(self, grace_s: float = 5.0) -> None:
        """Accept nothing more, answer what is being worked on for at most `grace_s` seconds, close the rest."""
        if self._server is not None:
            self._server.close()
        self._socket.close()
        for connection in list(self._connections.values()):
            connection.drain()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_s
        while self._connections and loop.time() < deadline:
            await asyncio.sleep(0.02)
        for connection in list(self._connections.values()):
            connection.close()

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def _opened(self, connection: Connection) -> bool:
        host = connection.session.client_host
        if len(self._connections) >= self._connections_max or self._per_host[host] >= self._per_host_max:
            log.warning("connection refused, too many", listener=self.name, peer=host, open=len(self._connections))
            return False
        self._connections[connection.session.connection_id] = connection
        self._per_host[host] += 1
        return True

    def _closed(self, connection: Connection) -> None:
        if self._connections.pop(connection.session.connection_id, None) is not None:
            host = connection.session.client_host
            self._per_host[host] -= 1
            if not self._per_host[host]:
                del self._per_host[host]


def _bound(endpoint: Endpoint) -> socket.socket:
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((endpoint.host, endpoint.port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise BindFailed(
            f"listener {endpoint.listener}: {endpoint.host}:{endpoint.port} cannot be bound ({error.strerror}); "
            "choose another port in `listeners` or stop what holds it"
        ) from error
    sock.setblocking(False)
    return sock
