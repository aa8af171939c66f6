"""The client side of TLS: this broker's connections to other brokers."""

import asyncio
import ssl
from collections.abc import Callable
from typing import TypeVar

from logyard.broker.tls.handshakes import Handshakes
from logyard.broker.tls.transport import TlsTransport

P = TypeVar("P", bound=asyncio.BufferedProtocol)


async def connect(
    new_protocol: Callable[[], P], host: str, port: int, context: ssl.SSLContext, handshakes: Handshakes
) -> P:
    """Connect, and return the protocol when the handshake is done.

    :raises OSError: there is no connection, or the handshake failed; the text says why.
    """
    loop = asyncio.get_running_loop()
    opened: asyncio.Future[None] = loop.create_future()
    protocol = new_protocol()

    def new_ssl(incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
        return context.wrap_bio(incoming, outgoing, server_hostname=host)

    def named(_: None) -> None:
        if not opened.done():
            opened.set_result(None)

    def failed(why: str) -> None:
        if not opened.done():
            opened.set_exception(ConnectionError(f"TLS: {why}"))

    def nobody(_: ssl.SSLObject) -> None:
        """The server's name was checked by the handshake."""

    transport = TlsTransport(protocol, handshakes, new_ssl, nobody, named, failed, speaks_first=True)
    await loop.create_connection(lambda: transport, host, port)
    try:
        await opened
    except asyncio.CancelledError:
        transport.abort()
        opened.cancel()
        raise
    return protocol
