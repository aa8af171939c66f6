"""A broker for tests of clients: a real loopback server whose answers the test decides, request by request.

    def script(asked: Asked) -> Answer:  # or a coroutine
        return {"error_code": 0}  # the answer's fields; bytes as they are; Hang(), HangUp()

    async with ScriptedBroker(script) as broker:
        link = Link("127.0.0.1", broker.port, client_id="me")

`broker.asked` keeps every decoded request in order, `connections` counts. `stop` and `start` keep the port.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from logyard.broker.model import BrokerInfo, Endpoint
from logyard.broker.protocol import codec, header


@dataclass(slots=True)
class Asked:
    """One request as it came, decoded."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: Any


class Hang:
    """Never answer this request."""


class HangUp:
    """Close the connection instead of answering."""


Answer = dict[str, Any] | Hang | HangUp | bytes
Script = Callable[[Asked], Answer | Awaitable[Answer]]


class ScriptedBroker:
    """`async with ScriptedBroker(script) as broker`; `asked` keeps every request in order."""

    def __init__(self, script: Script, broker_id: int = 1) -> None:
        self.script = script
        self.broker_id = broker_id
        self.asked: list[Asked] = []
        self.connections = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "ScriptedBroker":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def info(self) -> BrokerInfo:
        return BrokerInfo(self.broker_id, (Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", self.port),), epoch=1)

    async def start(self) -> None:
        """Listen, on the same port as before where it was stopped."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port and every connection."""
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while await self._answer_one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        head = header.parse_request_header(memoryview(bytearray(await reader.readexactly(size))))
        body = codec.decode_request(head.api_key, head.api_version, head.body)
        asked = Asked(head.api_key, head.api_version, head.correlation_id, head.client_id, body)
        self.asked.append(asked)
        answer = self.script(asked)
        if isinstance(answer, Awaitable):
            answer = await answer
        if isinstance(answer, HangUp):
            return False
        if isinstance(answer, bytes):
            writer.write(answer)
        elif isinstance(answer, dict):
            writer.write(codec.encode_response(asked.api_key, asked.version, asked.correlation_id, answer))
        await writer.drain()
        return True
