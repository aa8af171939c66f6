"""TLS on a real listener: every frame arrives whole, and who does not speak it properly holds up nobody."""

import asyncio
import gc
import random
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from structlog.testing import capture_logs

from logyard.broker.server.admission import RequestMemory
from logyard.broker.tls.handshakes import Handshakes
from logyard.broker.tls.transport import TlsTransport
from tests.support.tls_listener import (
    Echo,
    answer,
    client_context,
    connect,
    framed,
    listening,
    settings,
)

Main = Callable[[], Coroutine[Any, Any, None]]


def test_frames_of_every_size_come_back(run: Callable[[Main], None]) -> None:
    async def main() -> None:
        async with listening(Echo(), settings()) as listener:
            reader, writer = await connect(listener)
            for size in (2, 3, 1000, 16383, 16384, 16385, 65536, 300_000, 3_000_000):
                body = random.Random(size).randbytes(size)
                writer.write(framed(body))
                assert await answer(reader) == body
            writer.close()

    run(main)


def test_many_frames_in_one_write_are_answered_in_order(run: Callable[[Main], None]) -> None:
    async def main() -> None:
        async with listening(Echo(), settings()) as listener:
            reader, writer = await connect(listener)
            bodies = [random.Random(n).randbytes(2 + n * 37) for n in range(200)]
            writer.write(b"".join(map(framed, bodies)))
            for body in bodies:
                assert await answer(reader) == body
            writer.close()

    run(main)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_bytes_cut_anywhere(run: Callable[[Main], None], version: ssl.TLSVersion) -> None:
    """The client's records, the handshake's too, arrive one byte at a time."""

    async def main() -> None:
        async with listening(Echo(), settings()) as listener:
            loop = asyncio.get_running_loop()
            sock = socket.create_connection(("127.0.0.1", listener.port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)
            context = client_context()
            context.maximum_version = version
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            state = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")

            async def step(work: Callable[[], Any]) -> Any:
                while True:
                    try:
                        return work()
                    except ssl.SSLWantReadError:
                        await send()
                        incoming.write(await loop.sock_recv(sock, 7))

            async def send() -> None:
                for byte in outgoing.read():
                    await loop.sock_sendall(sock, bytes([byte]))

            await step(state.do_handshake)
            await send()
            body = b"x" * 300
            state.write(framed(body))
            await send()
            got = b""
            while len(got) < 304:
                got += await step(lambda: state.read(1000))
            assert got == framed(body)
            sock.close()

    run(main)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"\0\0\0\x10\0\x12\0\3\0\0\0\1\0\1x\0\0\0\0\0", "does not speak TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "speaks HTTP"),
        (b"\x16\x03\x01\xff\xff" + b"\xff" * 100, ""),
        (bytes(range(256)) * 20, "does not speak TLS"),
    ],
)
def test_garbage_is_one_line_and_the_end(run: Callable[[Main], None], sent: bytes, why: str) -> None:
    async def main() -> None:
        echo = Echo()
        with capture_logs() as lines:
            async with listening(echo, settings()) as listener:
                reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
                writer.write(sent)
                writer.write_eof()
                await reader.read()
                writer.close()
                good, other = await connect(listener)
                other.write(framed(b"ab"))
                assert await answer(good) == b"ab"
                other.close()
        told = [line for line in lines if line["event"] == "TLS handshake failed"]
        assert len(told) == 1
        assert told[0]["peer"] == "127.0.0.1"
        assert why in told[0]["why"]
        assert echo.principals == ["User:ANONYMOUS"]

    run(main)


def test_who_leaves_at_once_is_not_logged(run: Callable[[Main], None]) -> None:
    async def main() -> None:
        with capture_logs() as lines:
            async with listening(Echo(), settings()) as listener:
                _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
                while not listener.connections:
                    await asyncio.sleep(0.001)
                writer.close()
                while listener.connections:
                    await asyncio.sleep(0.001)
        assert [line for line in lines if line["event"] == "TLS handshake failed"] == []

    run(main)


def test_tls_on_a_plain_port_is_refused_with_a_hint(run: Callable[[Main], None]) -> None:
    async def main() -> None:
        given = {"zookeeper.connect": "z:1", "listeners": "PLAINTEXT://127.0.0.1:0"}
        given["advertised.listeners"] = "PLAINTEXT://127.0.0.1:1"
        with capture_logs() as lines:
            async with listening(Echo(), given) as listener:
                with pytest.raises((ssl.SSLError, OSError)):
                    await connect(listener)
        assert [line.get("note") for line in lines if line["event"] == "frame refused"] == ["the client may speak TLS"]

    run(main)


def test_slow_readers_get_all_and_are_bounded(run: Callable[[Main], None]) -> None:
    async def main() -> None:
        size = 20_000_000
        async with listening(Echo(large=size), settings()) as listener:
            reader, writer = await connect(listener)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(framed(b"\0\1"))
            await asyncio.sleep(0.2)
            (connection,) = listener.connections
            assert connection.bytes_read < size
            assert not connection.is_closing
            quick, other = await connect(listener)
            other.write(framed(b"\0\1"))
            assert len(await answer(quick)) == size
            writer.transport.resume_reading()  # type: ignore[attr-defined]
            got = await answer(reader)
            piece = bytes(range(256)) * 64
            assert got == (piece * (size // len(piece) + 1))[:size]
            assert connection.bytes_read == size + 4
            writer.close()
            other.close()

    run(main)


def test_a_muted_connection_gets_what_was_decrypted_before(run: Callable[[Main], None]) -> None:
    """Frames that came in one record with the one that muted the connection are answered when the mute is over."""

    class Muting(Echo):
        def __call__(self, session: Any, frame: memoryview) -> Any:
            session.mute(5)
            return super().__call__(session, frame)

    async def main() -> None:
        async with listening(Muting(), settings()) as listener:
            reader, writer = await connect(listener)
            bodies = [random.Random(n).randbytes(2 + n * 3000) for n in range(30)]
            writer.write(b"".join(map(framed, bodies)))
            for body in bodies:
                assert await answer(reader) == body
            writer.close()

    run(main)


def test_who_waits_for_memory_goes_on_with_what_was_decrypted(run: Callable[[Main], None]) -> None:
    """The bound of requests' memory counts what is decrypted, and nothing that OpenSSL holds is left there."""

    async def main() -> None:
        memory = RequestMemory(100_000)
        async with listening(Echo(), settings(), memory=memory) as listener:
            (_, one), (other_reader, other) = await connect(listener), await connect(listener)
            first = random.Random(1).randbytes(300_000)
            second = random.Random(2).randbytes(100_000)  # it comes in one receive, and no more bytes after it
            one.write(framed(first)[:200_000])
            while memory.left >= 0:
                await asyncio.sleep(0.001)
            other.write(framed(second) + framed(b"ab"))
            while not memory.waiting:
                await asyncio.sleep(0.001)
            small_reader, small = await connect(listener)
            small.write(framed(b"cd"))
            assert await answer(small_reader) == b"cd"
            assert memory.waiting == 1
            one.transport.abort()
            assert await answer(other_reader) == second
            assert await answer(other_reader) == b"ab"
            assert memory.left == 100_000
            for writer in (other, small):
                writer.close()

    run(main)


def test_what_was_written_arrives_before_the_end(run: Callable[[Main], None]) -> None:
    """`close` sends all answers and a close_notify: the reader sees an orderly end."""

    async def main() -> None:
        size = 5_000_000
        async with listening(Echo(large=size), settings()) as listener:
            reader, writer = await connect(listener)
            writer.write(framed(b"\0\1"))
            while not listener.connections or not next(iter(listener.connections)).signs_of_life:
                await asyncio.sleep(0.001)
            next(iter(listener.connections)).close()
            assert len(await answer(reader)) == size
            assert await reader.read() == b""
            writer.close()

    run(main)


def test_close_notify_of_the_peer_ends_the_connection(run: Callable[[Main], None]) -> None:
    async def main() -> None:
        async with listening(Echo(), settings()) as listener:
            reader, writer = await connect(listener)
            writer.write(framed(b"ab"))
            assert await answer(reader) == b"ab"
            writer.close()
            while listener.connections:
                await asyncio.sleep(0.001)

    run(main)


def test_nothing_of_a_connection_is_left(run: Callable[[Main], None]) -> None:
    async def main() -> None:
        async with listening(Echo(), settings()) as listener:
            for _ in range(10):
                reader, writer = await connect(listener)
                writer.write(framed(b"ab"))
                assert await answer(reader) == b"ab"
                writer.close()
            while listener.connections:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0)
            gc.collect()
            assert not [each for each in gc.get_objects() if issubclass(type(each), TlsTransport)]

    run(main)


def test_an_unfinished_handshake_ends_after_its_time(run: Callable[[Main], None]) -> None:
    async def main() -> None:
        with capture_logs() as lines:
            async with listening(Echo(), settings(), Handshakes(time_s=0.2)) as listener:
                reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
                assert await reader.read() == b""
                writer.close()
        assert [line["why"] for line in lines if line["event"] == "TLS handshake failed"] == [
            "the handshake took too long"
        ]

    run(main)


def test_the_longest_unfinished_handshake_makes_room(run: Callable[[Main], None]) -> None:
    """Connections are counted before the handshake, and those that have begun one have a bound."""

    async def main() -> None:
        shakes = Handshakes(waiting_max=3)
        async with listening(Echo(), settings(), shakes) as listener:
            hello = client_hello()
            half_open = []
            for number in range(6):
                streams = await asyncio.open_connection("127.0.0.1", listener.port)
                streams[1].write(hello)
                half_open.append(streams)
                while shakes.waiting_count < min(number + 1, 3) or not await answered(streams[0]):
                    await asyncio.sleep(0.001)
            while len(listener.connections) > 3:
                await asyncio.sleep(0.001)
            assert shakes.waiting_count == 3
            reader, writer = await connect(listener)
            writer.write(framed(b"ab"))
            assert await answer(reader) == b"ab"
            for _, other in [*half_open, (reader, writer)]:
                other.close()

    run(main)


async def answered(reader: asyncio.StreamReader) -> bool:
    return bool(await reader.read(1))


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    state = client_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        state.do_handshake()
    return outgoing.read()


def test_renegotiation_is_refused(run: Callable[[Main], None]) -> None:
    from logyard.broker.tls.context import read_stores, server_context
    from tests.support.tls_listener import config

    read = config(settings()).listener("SSL")
    assert server_context(read, *read_stores(read)).options & ssl.OP_NO_RENEGOTIATION
