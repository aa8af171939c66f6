"""A real listener with TLS whose dispatcher gives back each frame, and clients for it."""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

from logyard.broker.config.broker import BrokerConfig
from logyard.broker.server.admission import Admission, Limits, RequestMemory
from logyard.broker.server.dispatch import Dispatcher
from logyard.broker.server.listener import Listener
from logyard.broker.tls.context import read_file
from logyard.broker.tls.handshakes import Handshakes
from logyard.broker.tls.renewal import read_material
from logyard.broker.tls.server_side import ServerSide
from tests.support.certificates import Authority, Issued, pem_settings

AUTHORITY = Authority()
OTHERS = Authority("another CA")
SERVER = AUTHORITY.issue("broker")
CLIENT = AUTHORITY.issue("client")


class Echo:
    """Answers each frame with itself, or with `large` bytes, in pieces."""

    def __init__(self, large: int = 0) -> None:
        self.principals: list[str] = []
        self.large = large

    def may_pipeline(self, api_key: int) -> bool:
        return False

    def has_small_answer(self, api_key: int) -> bool:
        return not self.large

    def __call__(self, session: Any, frame: memoryview) -> Any:
        self.principals.append(session.principal)
        if not self.large:
            return struct.pack(">i", len(frame)) + bytes(frame)
        piece = bytes(range(256)) * 64
        pieces = [
            struct.pack(">i", self.large),
            *[piece] * (self.large // len(piece)),
            piece[: self.large % len(piece)],
        ]
        return [p for p in pieces if p]


def settings(own: Issued | None = SERVER, trusted: Authority | None = AUTHORITY, **more: str) -> dict[str, str]:
    """Return a broker's settings with one SSL listener; names in `more` have `_` for dots."""
    return {
        "zookeeper.connect": "z:1",
        "listeners": "SSL://127.0.0.1:0",
        "advertised.listeners": "SSL://127.0.0.1:1",
        "security.inter.broker.protocol": "SSL",
        **{key: value.replace("\\n", "\n") for key, value in pem_settings("", own, trusted).items()},
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def config(given: Mapping[str, str]) -> BrokerConfig:
    return BrokerConfig.parse("", given)


@asynccontextmanager
async def listening(
    echo: Echo,
    given: Mapping[str, str],
    handshakes: Handshakes | None = None,
    idle_ms: int = 600_000,
    memory: RequestMemory | None = None,
) -> AsyncIterator[Listener]:
    read = config(given)
    shakes = handshakes or Handshakes()
    endpoint = read.listeners[0]
    own = read.listener(endpoint.listener)
    material = read_material(own, read_file, connects=False, is_checked=False) if endpoint.protocol == "SSL" else None
    tls = ServerSide(own, shakes, material) if material else None
    listener = Listener(endpoint, Admission(Limits(idle_ms=idle_ms), lambda: 0.0), memory=memory, tls=tls)
    await listener.serve(cast(Dispatcher, echo))
    try:
        yield listener
    finally:
        await listener.close(grace_s=0.5)
        shakes.close()


def client_context(own: Issued | None = None, trusted: Authority = AUTHORITY) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=trusted.pem)
    if own is not None:
        load(context, own)
    return context


def load(context: ssl.SSLContext, own: Issued) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(own.key_pem + own.chain_pem)
        file.flush()
        context.load_cert_chain(file.name)


async def connect(
    listener: Listener, context: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", listener.port, ssl=context or client_context(), limit=1 << 22)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


async def answer(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)
