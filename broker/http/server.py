"""uvicorn on the broker's own event loop: the socket is bound early, and served once the broker is ready."""

import asyncio
import contextlib
import socket
from typing import Any

from logyard.broker import tasks
from logyard.broker.errors import LogyardError
from logyard.broker.http.connections import BoundedConnection
from logyard.broker.http.tls_connections import TlsConnections
from logyard.broker.http.uvicorn_parts import Config, Server
from logyard.broker.tls.server_side import ServerSide


class HttpRefused(LogyardError):
    """The broker cannot listen for HTTP at the configured address."""


class HttpServer:
    """One listening socket and, after `start`, the server on it."""

    def __init__(self, host: str, port: int, tls: ServerSide | None = None) -> None:
        """Bind; raises HttpRefused. An address off loopback needs TLS and log-ins (config/http_side.py)."""
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            raise HttpRefused(
                f"http.listener={host}:{port} cannot be bound ({error.strerror}): choose another port"
            ) from error
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self._tls = tls
        self.server: Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, app: Any) -> None:
        connection: Any = BoundedConnection if self._tls is None else TlsConnections(self._tls)
        config = Config(
            app,
            http=connection,
            # A connection that becomes one of WebSocket would have no bounds any more.
            ws="none",
            # Else a client on this machine could give any address as its own.
            proxy_headers=False,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
        )
        server = Server(config)
        # Signals belong to the broker.
        server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
        self.server = server
        self._task = tasks.spawn("http", server.serve(sockets=[self._socket]))
        while not server.started and not self._task.done():
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        if self.server is not None and self._task is not None:
            self.server.should_exit = True
            await asyncio.gather(self._task, return_exceptions=True)
        self._socket.close()
