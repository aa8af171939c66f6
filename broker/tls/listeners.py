"""The TLS of one broker: the server side of each of its listeners that has one, and its own side towards others."""

import asyncio
import ssl
from collections.abc import Callable
from typing import TypeVar

from logyard.broker.config.broker import BrokerConfig
from logyard.broker.tls import client_side
from logyard.broker.tls.context import client_context, read_file
from logyard.broker.tls.handshakes import Handshakes
from logyard.broker.tls.server_side import ServerSide
from logyard.broker.tls.stores import ReadFile

PROTOCOLS = ("SSL", "SASL_SSL")

P = TypeVar("P", bound=asyncio.BufferedProtocol)


class TlsListeners:
    """Empty until `open`, since stores may be configured in ZooKeeper too."""

    def __init__(self, handshakes: Handshakes | None, read: ReadFile = read_file) -> None:
        """`handshakes` is None where there are no threads for them: then nothing can be opened."""
        self._handshakes = handshakes
        self._read = read
        self._servers: dict[str, ServerSide] = {}
        self._context: ssl.SSLContext | None = None

    def open(self, config: BrokerConfig) -> None:
        """Read the stores of all listeners. Raises TlsProblem, one line that says what to do."""
        secured = [e.listener for e in config.listeners if e.protocol in PROTOCOLS]
        if not secured:
            return
        assert self._handshakes is not None
        self._servers = {name: ServerSide(config.listener(name), self._handshakes, self._read) for name in secured}
        inner = self._servers.get(config.inter_broker_listener)
        if inner is not None:
            self._context = client_context(config.listener(config.inter_broker_listener), inner.keys, inner.trust)

    def server(self, listener: str) -> ServerSide | None:
        """Return the server side of a listener; None: it is plain."""
        return self._servers.get(listener)

    @property
    def speaks_tls(self) -> bool:
        """Whether this broker's connections to others use TLS."""
        return self._context is not None

    async def connect(self, new_protocol: Callable[[], P], host: str, port: int) -> P:
        """Connect to another broker with TLS. Raises OSError."""
        assert self._context is not None
        assert self._handshakes is not None
        return await client_side.connect(new_protocol, host, port, self._context, self._handshakes)
