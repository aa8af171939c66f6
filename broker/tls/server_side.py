"""The server side of TLS on one listener: its stores as they were last read, and the names of its clients."""

import ssl
from asyncio import BufferedProtocol
from collections.abc import Callable

import structlog

from logyard.broker.config.listener_settings import ListenerSettings
from logyard.broker.tls.context import read_file, read_stores, server_context
from logyard.broker.tls.distinguished_name import rfc2253
from logyard.broker.tls.handshakes import Handshakes
from logyard.broker.tls.principal_rules import PrincipalRules
from logyard.broker.tls.problems import TlsProblem
from logyard.broker.tls.stores import ReadFile, subject_of
from logyard.broker.tls.transport import LEFT_BEFORE, TlsTransport

ANONYMOUS = "User:ANONYMOUS"

log = structlog.get_logger("logyard.tls")


class ServerSide:
    """Puts TLS in front of a listener's connections."""

    def __init__(self, settings: ListenerSettings, handshakes: Handshakes, read: ReadFile = read_file) -> None:
        """Raise TlsProblem if the settings or a store cannot be used."""
        self._handshakes = handshakes
        self._listener = settings.name
        # On SASL_SSL the principal is that of the log-in, whatever the certificate (facts §18.3).
        self._names_clients = settings.protocol == "SSL"
        self.keys, self.trust = read_stores(settings, read)
        self._context = server_context(settings, self.keys, self.trust)
        try:
            self._rules = PrincipalRules(settings.str("ssl.principal.mapping.rules"))
        except ValueError as problem:
            raise TlsProblem(f"{settings.name_of('ssl.principal.mapping.rules')}: {problem}") from None

    def wrap(
        self, protocol: BufferedProtocol, peer: Callable[[], str], named: Callable[[str], None]
    ) -> BufferedProtocol:
        """Return what to connect to the socket instead of `protocol`.

        :param peer: returns the client's address, for the log.
        :param named: is called with the client's principal before `protocol` receives anything.
        """

        def new_ssl(incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
            return self._context.wrap_bio(incoming, outgoing, server_side=True)

        def failed(why: str) -> None:
            if why != LEFT_BEFORE:
                log.info("TLS handshake failed", listener=self._listener, peer=peer(), why=why)

        return TlsTransport(protocol, self._handshakes, new_ssl, self._principal, named, failed)

    def _principal(self, connection: ssl.SSLObject) -> str:
        """Return the client's principal. Raises NoRuleApplies, ValueError."""
        certificate = connection.getpeercert(binary_form=True) if self._names_clients else None
        if certificate is None:
            return ANONYMOUS
        return f"User:{self._rules.name_of(rfc2253(subject_of(certificate)))}"
