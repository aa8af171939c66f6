"""How connections to other brokers are made: plain or with TLS, and how this broker logs in to them."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from logyard.broker.client.peer_login import PeerLogin
from logyard.broker.config.broker import BrokerConfig, ConfigProblems
from logyard.broker.event_loop import RunBlocking
from logyard.broker.security.sasl.login_modules import client_exchange
from logyard.broker.tls.listeners import TlsListeners

SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")

P = TypeVar("P", bound=asyncio.BufferedProtocol)


class PeerSecurity:
    """One for each broker; its links connect through it. Without SASL between brokers there is no `login`."""

    def __init__(self, tls: TlsListeners | None = None, login: PeerLogin | None = None) -> None:
        self._tls = tls
        self.login = login

    async def connect(self, new_protocol: Callable[[], P], host: str, port: int) -> P:
        """Connect and return the protocol, ready for requests. Raises OSError, whose text says what failed."""
        if self._tls is not None and self._tls.speaks_tls:
            return await self._tls.connect(new_protocol, host, port)
        _, protocol = await asyncio.get_running_loop().create_connection(new_protocol, host, port)
        return protocol


PLAIN = PeerSecurity()


def peer_login(config: BrokerConfig, run_blocking: RunBlocking) -> PeerLogin | None:
    """Return how this broker logs in to others, None if it does not. Raises ConfigProblems."""
    listener = config.listener(config.inter_broker_listener)
    if listener.protocol not in SASL_PROTOCOLS:
        return None
    mechanism = config.str("sasl.mechanism.inter.broker.protocol")
    try:
        return PeerLogin(mechanism, client_exchange(listener, mechanism), run_blocking)
    except ValueError as error:
        raise ConfigProblems([str(error)]) from None
