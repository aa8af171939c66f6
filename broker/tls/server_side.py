"""The server side of TLS on one listener: its stores as they were last read, and the names of its clients."""

import ssl
from asyncio import BufferedProtocol
from collections.abc import Callable

import structlog

from logyard.broker.config.listener_settings import ListenerSettings
from logyard.broker.tls.distinguished_name import rfc2253
from logyard.broker.tls.handshakes import Handshakes
from logyard.broker.tls.principal_rules import PrincipalRules
from logyard.broker.tls.problems import TlsProblem
from logyard.broker.tls.renewal import Material
from logyard.broker.tls.stores import subject_of
from logyard.broker.tls.transport import LEFT_BEFORE, TlsTransport

ANONYMOUS = "User:ANONYMOUS"

log = structlog.get_logger("logyard.tls")


class ServerSide:
    """Puts TLS in front of a listener's connections."""

    def __init__(self, settings: ListenerSettings, handshakes: Handshakes, material: Material) -> None:
        """Raise TlsProblem if a setting cannot be used. `material` may be replaced: open connections keep theirs."""
        self._handshakes = handshakes
        self._listener = settings.name
        self.material = material
        # On SASL_SSL the principal is that of the log-in, whatever the certificate (facts §18.3).
        self._names_clients = settings.protocol == "SSL"
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
            return self.material.server.wrap_bio(incoming, outgoing, server_side=True)

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
