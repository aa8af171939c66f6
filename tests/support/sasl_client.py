"""A client that logs in byte by byte: for what no library does. It knows nothing of the broker's own log-in."""

import asyncio
import ssl
import struct
from typing import Any

from logyard.broker.protocol import codec
from logyard.broker.security.sasl.mechanism import ClientExchange

HANDSHAKE, VERSIONS, AUTHENTICATE, METADATA = 17, 18, 36, 3


KVSEP = "\x01"


class SaslClient:
    """One connection to a listener with SASL."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._correlation_id = 0

    @classmethod
    async def connect(cls, port: int, tls: ssl.SSLContext | None = None) -> "SaslClient":
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=tls))

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def send_frame(self, frame: bytes) -> None:
        """Send a frame with its size."""
        self.send(struct.pack(">i", len(frame)) + frame)

    async def frame(self, timeout_s: float = 20.0) -> bytes | None:
        """Return the next frame without its size, None if the broker has closed the connection."""
        try:
            async with asyncio.timeout(timeout_s):
                size = struct.unpack(">i", await self._reader.readexactly(4))[0]
                return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    def encode(self, api_key: int, version: int, **fields: Any) -> bytes:
        self._correlation_id += 1
        return codec.encode_request(api_key, version, self._correlation_id, "hand", fields)

    async def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        """Return the decoded answer, None if the broker has closed the connection."""
        self.send(self.encode(api_key, version, **fields))
        answer = await self.frame()
        return None if answer is None else codec.decode_response(api_key, version, memoryview(answer))[1]

    async def log_in(self, mechanism: str, exchange: ClientExchange, version: int = 2, handshake: int = 1) -> Any:
        """Log in; returns the last answer to SaslAuthenticate (handshake v0: its token), None if it was closed."""
        hello = await self.ask(HANDSHAKE, handshake, mechanism=mechanism)
        assert hello is not None
        if hello.error_code:
            return hello
        token: bytes | None = exchange.first()
        answer: Any = None
        while token is not None:
            if handshake == 0:
                self.send_frame(token)
                answer = given = await self.frame()
            else:
                answer = await self.ask(AUTHENTICATE, version, auth_bytes=token)
                given = None if answer is None or answer.error_code else bytes(answer.auth_bytes)
            if given is None:
                return answer
            token = exchange.step(given)
        return answer

    async def is_served(self) -> bool:
        """Whether a Metadata request gets an answer."""
        return await self.ask(METADATA, 9, topics=[]) is not None

    async def close(self) -> None:
        self._writer.close()


class OAuthBearerClient:
    """The client's side: one token. A refusal is answered with a byte 1, after which the server fails the log-in."""

    def __init__(self, token: str) -> None:
        self._token = token
        self.is_done = False

    def first(self) -> bytes:
        return f"n,,{KVSEP}auth=Bearer {self._token}{KVSEP}{KVSEP}".encode()

    def step(self, token: bytes) -> bytes | None:
        if token:
            return KVSEP.encode()
        self.is_done = True
        return None
