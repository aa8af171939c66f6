"""HTTP connections end: whoever does not go on is cut off, and there is a most."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest

from logyard.broker.http import connections
from logyard.broker.http.server import HttpServer

LARGE = 30_000_000


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LOOK_S", 0.02)
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    monkeypatch.setattr(connections, "PIECE_S", 0.4)


async def app(scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
    size = 2
    if scope["path"] == "/slow":
        await asyncio.sleep(1.0)
    if scope["path"] == "/body":
        while (await receive()).get("more_body"):
            pass
    if scope["path"] == "/large":
        size = LARGE
    status = 401 if scope["path"] == "/refused" else 200
    headers = [(b"content-length", str(size).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": bytes(size)})


@asynccontextmanager
async def serving() -> AsyncIterator[HttpServer]:
    server = HttpServer("127.0.0.1", 0)
    await server.start(app)
    try:
        yield server
    finally:
        await server.close()
        for peer in Peer.opened:
            peer.writer.close()
        Peer.opened.clear()
        await asyncio.sleep(0)  # their sockets are closed at the next turn


class Peer:
    opened: ClassVar[list["Peer"]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def of(cls, server: HttpServer) -> "Peer":
        cls.opened.append(cls(*await asyncio.open_connection("127.0.0.1", server.port, limit=1024)))
        return cls.opened[-1]

    async def head(self) -> bytes:
        async with asyncio.timeout(20):
            return await self.reader.readuntil(b"\r\n\r\n")

    async def drips_until_cut_off(self, every_s: float = 0.02) -> None:
        """Send a byte again and again until the connection is gone."""

        async def drip() -> None:
            while not self.reader.at_eof():
                self.writer.write(b"x")
                await self.writer.drain()
                await asyncio.sleep(every_s)

        async with asyncio.timeout(20):
            dripping = asyncio.ensure_future(drip())
            try:
                await self.reader.read()
            except ConnectionError:
                pass
            finally:
                dripping.cancel()
                await asyncio.gather(dripping, return_exceptions=True)


@pytest.mark.parametrize("begin", [b"", b"GET / HTTP/1.1\r\nX-Slow: "])
async def test_a_head_that_never_ends_is_cut_off(begin: bytes) -> None:
    async with serving() as server:
        peer = await Peer.of(server)
        peer.writer.write(begin)
        await peer.drips_until_cut_off() if begin else await asyncio.wait_for(peer.reader.read(), 20)


async def test_a_second_head_is_no_better() -> None:
    async with serving() as server:
        peer = await Peer.of(server)
        peer.writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert b"200" in await peer.head()
        await peer.drips_until_cut_off()


async def test_a_body_that_drips_is_cut_off() -> None:
    async with serving() as server:
        peer = await Peer.of(server)
        peer.writer.write(b"PUT /body HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n")
        await peer.drips_until_cut_off()


async def test_a_body_that_goes_on_after_it_was_refused_is_cut_off() -> None:
    async with serving() as server:
        peer = await Peer.of(server)
        peer.writer.write(b"PUT /refused HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n")
        assert b"401" in await peer.head()
        await peer.drips_until_cut_off()


async def test_an_answer_that_nobody_reads_is_cut_off() -> None:
    async with serving() as server:
        peer = await Peer.of(server)
        peer.writer.write(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n")
        await peer.head()
        async with asyncio.timeout(20):
            while server.server is not None and server.server.server_state.connections:
                await asyncio.sleep(0.01)
        peer.writer.close()


async def test_who_goes_on_slowly_and_who_waits_for_work_are_not_cut_off() -> None:
    async with serving() as server:
        peer = await Peer.of(server)
        peer.writer.write(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
        assert b"200" in await peer.head()
        assert await peer.reader.readexactly(2)
        peer.writer.write(b"PUT /body HTTP/1.1\r\nHost: h\r\nContent-Length: 600000\r\n\r\n")
        for _ in range(10):
            peer.writer.write(bytes(60_000))
            await asyncio.sleep(0.1)
        assert b"200" in await peer.head()
        peer.writer.close()


async def test_a_head_has_a_bound() -> None:
    async with serving() as server:
        peer = await Peer.of(server)
        peer.writer.write(b"GET / HTTP/1.1\r\nX-Large: " + b"x" * 100_000)
        assert b"400" in await peer.head()


async def test_one_connection_too_many_is_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 3)
    monkeypatch.setattr(connections, "HEAD_S", 60.0)
    async with serving() as server:
        peers = [await Peer.of(server) for _ in range(3)]
        for peer in peers:
            peer.writer.write(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
            await peer.writer.drain()
        await asyncio.sleep(0.1)
        late = await Peer.of(server)
        late.writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await late.head()
        for peer in peers:
            assert b"200" in await peer.head()
            peer.writer.close()


async def test_who_asks_for_nothing_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 3)
    monkeypatch.setattr(connections, "HEAD_S", 60.0)
    async with serving() as server:
        peers = []
        for _ in range(3):
            peers.append(await Peer.of(server))
            await asyncio.sleep(0.02)
        for _ in range(5):
            late = await Peer.of(server)
            late.writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            assert b"200" in await late.head()
            late.writer.close()
        assert await asyncio.wait_for(peers[0].reader.read(), 20) == b""
        for peer in peers:
            peer.writer.close()
