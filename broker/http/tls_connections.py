"""HTTP connections behind the broker's own TLS: its handshakes in threads, its bounds, and the client's principal.

A connection is one of HTTP, with its time limits and counted among them, before its handshake has begun.
"""

import asyncio
from typing import Any

from logyard.broker.http.connections import BoundedConnection
from logyard.broker.tls.server_side import ServerSide

BUFFER_BYTES = 64 * 1024


class TlsConnections:
    """Makes a connection, as uvicorn's class does. What was decrypted goes through one buffer: nothing stays in it."""

    def __init__(self, tls: ServerSide) -> None:
        self._tls = tls
        self._buffer = memoryview(bytearray(BUFFER_BYTES))

    def __call__(self, **given: Any) -> asyncio.BufferedProtocol:
        connection = BoundedConnection(**given)

        def named(principal: str) -> None:
            connection.app_state = {**connection.app_state, "principal": principal}

        def peer() -> str:
            return "" if connection.client is None else connection.client[0]

        return self._tls.wrap(_Decrypted(connection, self._buffer), peer, named)


class _Decrypted(asyncio.BufferedProtocol):
    """Hands what was received into a buffer to a protocol that takes bytes."""

    def __init__(self, connection: BoundedConnection, buffer: memoryview) -> None:
        self._connection = connection
        self._buffer = buffer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._connection.data_received(bytes(self._buffer[:nbytes]))

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()
