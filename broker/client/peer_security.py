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
    """How links to one listener of other brokers connect. Without SASL on that listener there is no `login`."""

    def __init__(self, listener: str = "", tls: TlsListeners | None = None, login: PeerLogin | None = None) -> None:
        self._listener = listener
        self._tls = tls
        self.login = login

    async def connect(self, new_protocol: Callable[[], P], host: str, port: int) -> P:
        """Connect and return the protocol, ready for requests. Raises OSError, whose text says what failed."""
        if self._tls is not None and self._tls.speaks_tls(self._listener):
            return await self._tls.connect(self._listener, new_protocol, host, port)
        _, protocol = await asyncio.get_running_loop().create_connection(new_protocol, host, port)
        return protocol


PLAIN = PeerSecurity()


def peer_securities(
    config: BrokerConfig, tls: TlsListeners, run_blocking: RunBlocking, now_ms: Callable[[], int]
) -> tuple[PeerSecurity, PeerSecurity]:
    """Return how links connect on the listener between brokers, and on that of the control plane (often the same).

    Raises ConfigProblems.
    """
    names = config.inter_broker_listener, config.control_plane_listener
    made = {
        name: PeerSecurity(name, tls, peer_login(config, name, run_blocking, now_ms)) for name in dict.fromkeys(names)
    }
    return made[names[0]], made[names[1]]


def peer_login(
    config: BrokerConfig, name: str, run_blocking: RunBlocking, now_ms: Callable[[], int]
) -> PeerLogin | None:
    """Return how this broker logs in to others on that listener, None if it does not. Raises ConfigProblems.

    The mechanism is the same on both listeners, as in Kafka.
    """
    listener = config.listener(name)
    if listener.protocol not in SASL_PROTOCOLS:
        return None
    mechanism = config.str("sasl.mechanism.inter.broker.protocol")
    try:
        return PeerLogin(mechanism, client_exchange(listener, mechanism, now_ms), run_blocking)
    except ValueError as error:
        raise ConfigProblems([str(error)]) from None
