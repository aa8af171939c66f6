"""How connections to other brokers are made: plain, or with the TLS of the listener between brokers."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from logyard.broker.tls.listeners import TlsListeners

P = TypeVar("P", bound=asyncio.BufferedProtocol)


class PeerSecurity:
    """One for each broker; its links connect through it."""

    def __init__(self, tls: TlsListeners | None = None) -> None:
        self._tls = tls

    async def connect(self, new_protocol: Callable[[], P], host: str, port: int) -> P:
        """Connect and return the protocol, ready for requests. Raises OSError, whose text says what failed."""
        if self._tls is not None and self._tls.speaks_tls:
            return await self._tls.connect(new_protocol, host, port)
        _, protocol = await asyncio.get_running_loop().create_connection(new_protocol, host, port)
        return protocol


PLAIN = PeerSecurity()
