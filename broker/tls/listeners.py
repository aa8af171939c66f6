"""The TLS of one broker: the server side of each of its listeners that has one, and its own side towards others.

The HTTP side has the stores and settings of one of the listeners (`http.security.listener`), but only asks for
certificates: who has none may show a password or a token.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import TypeVar

import structlog

from logyard.broker.config import http_side
from logyard.broker.config.broker import BrokerConfig
from logyard.broker.tls import client_side
from logyard.broker.tls.context import read_file, unasked_suites
from logyard.broker.tls.handshakes import Handshakes
from logyard.broker.tls.renewal import Material, read_material, renewed
from logyard.broker.tls.server_side import ServerSide
from logyard.broker.tls.stores import ReadFile

PROTOCOLS = ("SSL", "SASL_SSL")
# No listener can have this name: theirs are in capitals.
HTTP = "http"

P = TypeVar("P", bound=asyncio.BufferedProtocol)

log = structlog.get_logger("logyard.tls")


class TlsListeners:
    """Empty until `open`, since stores may be configured in ZooKeeper too."""

    def __init__(self, handshakes: Handshakes | None, read: ReadFile = read_file) -> None:
        """`handshakes` is None where there are no threads for them: then nothing can be opened."""
        self._handshakes = handshakes
        self._read = read
        self._servers: dict[str, ServerSide] = {}

    def open(self, config: BrokerConfig) -> None:
        """Read the stores of all listeners. Raises TlsProblem, one line that says what to do."""
        between_brokers = config.inter_broker_listener
        connects = (between_brokers, config.control_plane_listener)
        for endpoint in config.listeners:
            if endpoint.protocol not in PROTOCOLS:
                continue
            assert self._handshakes is not None
            name, settings = endpoint.listener, config.listener(endpoint.listener)
            material = read_material(
                settings, self._read, connects=name in connects, is_checked=name == between_brokers
            )
            self._servers[name] = ServerSide(settings, self._handshakes, material)
            others = unasked_suites(material.server, settings)
            if others:
                key = settings.name_of("ssl.cipher.suites")
                log.warning(f"{key}: more suites of TLS 1.3 stay, see docs/security.md", suites=", ".join(others))
        http = http_side.shared(config)
        if http is not None:
            assert self._handshakes is not None
            material = read_material(http, self._read, connects=True, is_checked=False)
            self._servers[HTTP] = ServerSide(http, self._handshakes, material)

    @property
    def is_open(self) -> bool:
        """Whether any listener has TLS."""
        return bool(self._servers)

    def renewed(self, config: BrokerConfig) -> Mapping[str, Material]:
        """Read all stores again, with these settings; return what has changed, by listener, for `use`.

        It may be called in a thread. Raises TlsProblem if a store cannot take the place of the one that is used.
        """
        found = {}
        for name, server in list(self._servers.items()):
            settings = http_side.shared(config) if name == HTTP else config.listener(name)
            assert settings is not None  # `http.security.listener` cannot change while the broker runs
            new = renewed(settings, self._read, server.material)
            if new is not None:
                found[name] = new
        return found

    def use(self, renewed: Mapping[str, Material]) -> None:
        """Make later connections with these; open ones stay as they are."""
        for name, material in renewed.items():
            self._servers[name].material = material

    def server(self, listener: str) -> ServerSide | None:
        """Return the server side of a listener; None: it is plain."""
        return self._servers.get(listener)

    @property
    def http(self) -> ServerSide | None:
        """The server side of HTTP; None: it is plain."""
        return self._servers.get(HTTP)

    def http_client(self) -> ssl.SSLContext:
        """Return the context for requests to the HTTP side of other brokers, which has the same settings as this one's.

        Without TLS at HTTP it trusts the system's authorities.
        """
        http = self._servers.get(HTTP)
        if http is None or http.material.client is None:
            return ssl.create_default_context()
        return http.material.client

    def speaks_tls(self, listener: str) -> bool:
        """Whether this broker's connections to others on that listener use TLS."""
        return listener in self._servers

    async def connect(self, listener: str, new_protocol: Callable[[], P], host: str, port: int) -> P:
        """Connect with TLS to another broker, on a listener between brokers. Raises OSError."""
        context = self._servers[listener].material.client
        assert context is not None
        assert self._handshakes is not None
        return await client_side.connect(new_protocol, host, port, context, self._handshakes)
