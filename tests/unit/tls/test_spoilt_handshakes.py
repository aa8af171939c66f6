"""Every byte of a client's handshake cut, left out, repeated and flipped: nobody else gets in, and nothing stays.

The server side is the listener's own, without sockets and threads; the client is OpenSSL with a certificate.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import structlog

from logyard.broker.tls import transport
from logyard.broker.tls.context import read_file
from logyard.broker.tls.handshakes import Handshakes
from logyard.broker.tls.renewal import read_material
from logyard.broker.tls.server_side import ServerSide
from tests.support.lengths import IS_PROOF
from tests.support.tls_listener import CLIENT, client_context, config, settings

SAID = b"what the client says once it is connected"
Spoil = Callable[[bytes], bytes]


def flipped(data: bytes, at: int, bits: int) -> bytes:
    """The same with bits of one byte flipped. A signature may be shorter than the last time: then nothing is."""
    return data[:at] + bytes(byte ^ bits for byte in data[at : at + 1]) + data[at + 1 :]


SPOILS: list[Callable[[int], Spoil]] = [
    lambda at: lambda data: data[:at],
    lambda at: lambda data: data[:at] + data[at + 1 :],
    lambda at: lambda data: data[: at + 1] + data[at:],
    lambda at: lambda data: flipped(data, at, 0x01),
    lambda at: lambda data: flipped(data, at, 0x80),
    lambda at: lambda data: flipped(data, at, 0xFF),
]


class Now(Handshakes):
    """Computes each step at once."""

    def compute(self, work: Callable[[], object]) -> "asyncio.Future[object]":
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        try:
            done.set_result(work())
        except Exception as error:
            done.set_exception(error)
        return done


class Raw:
    """The socket's transport."""

    def __init__(self) -> None:
        self.sent = b""
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.sent += data

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def set_write_buffer_limits(self, high: int) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return len(self.sent)

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default


class Behind(asyncio.BufferedProtocol):
    """What is behind the TLS: it notes what it receives, and from whom."""

    def __init__(self) -> None:
        self.principal: str | None = None
        self.received = b""
        self._buffer = memoryview(bytearray(1024))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]


class Listening:
    """One listener that wants certificates."""

    def __init__(self) -> None:
        self.shakes = Now()
        listener = config(settings(ssl_client_auth="required")).listener("SSL")
        material = read_material(listener, read_file, connects=False, is_checked=False)
        self.side = ServerSide(listener, self.shakes, material)

    async def meet(self, context: ssl.SSLContext, spoil: tuple[int, Spoil] | None = None) -> tuple[Behind, list[bytes]]:
        """One client from its first byte to its end. Returns what the server knows, and the flights as they were.

        `spoil` is the number of the flight and what becomes of it.
        """
        raw, behind = Raw(), Behind()
        connection = self.side.wrap(behind, lambda: "there", lambda name: setattr(behind, "principal", name))
        connection.connection_made(raw)  # type: ignore[arg-type]
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        flights: list[bytes] = []
        is_over = False
        while not is_over:
            is_over = self._step(client, said=len(flights) > 0)
            flight = outgoing.read()
            if flight:
                flights.append(flight)
                changed = flight if spoil is None or spoil[0] != len(flights) - 1 else spoil[1](flight)
                await self._feed(connection, raw, changed)
            if not raw.sent:
                break
            incoming.write(raw.sent)
            raw.sent = b""
        connection.connection_lost(None)
        return behind, flights

    @staticmethod
    def _step(client: ssl.SSLObject, *, said: bool) -> bool:
        """Let the client go on; whether it has nothing more to say."""
        try:
            client.do_handshake()
            if said:
                client.write(SAID)
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError:
            return True
        return True

    async def _feed(self, connection: asyncio.BufferedProtocol, raw: Raw, data: bytes) -> None:
        if data and not raw.is_closed:
            memoryview(connection.get_buffer(-1))[: len(data)] = data
            connection.buffer_updated(len(data))
            for _ in range(3):
                await asyncio.sleep(0)


def places(flights: list[bytes], every: int) -> Iterator[tuple[int, Spoil]]:
    """Each way to spoil a flight, at every byte, or every so many."""
    for number, flight in enumerate(flights):
        yield number, lambda data: data + data
        for at in range(0, len(flight), every):
            for spoil in SPOILS:
                yield number, spoil(at)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("every", [37, pytest.param(1 if IS_PROOF else 5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_spoilt_handshakes(version: ssl.TLSVersion, every: int) -> None:
    context = client_context(CLIENT)
    context.minimum_version = context.maximum_version = version
    listening = Listening()
    troubles: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: troubles.append(told))
    honest, flights = await listening.meet(context)
    assert (honest.principal, honest.received) == ("User:CN=client", SAID)
    tried = let_in = 0
    with structlog.testing.capture_logs() as logged:
        for spoil in places(flights, every):
            behind, _ = await listening.meet(context, spoil)
            tried += 1
            let_in += behind.principal is not None
            # Who gets in is the owner of the certificate, and only his own words come through.
            assert behind.principal in (None, "User:CN=client")
            assert SAID.startswith(behind.received)
            assert behind.principal is not None or not behind.received
            assert listening.shakes.waiting_count == 0
    assert tried > 5 * sum(map(len, flights)) / every
    assert let_in < tried / 2  # a byte that nobody looks at does no harm; most do
    assert {line["event"] for line in logged} <= {"TLS handshake failed", "connection closed"}
    assert troubles == []
    listening.shakes.close()


async def test_who_asks_for_new_keys_and_reads_no_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSL answers each key update at once: a peer that does not read would fill the memory, before any log-in."""
    monkeypatch.setattr(transport, "UNREAD_BYTES_MAX", 300)
    shakes = Now()
    listener = config(settings()).listener("SSL")
    side = ServerSide(listener, shakes, read_material(listener, read_file, connects=False, is_checked=False))
    raw, is_open = Raw(), asyncio.Event()
    connection = side.wrap(Behind(), lambda: "there", lambda _: is_open.set())
    connection.connection_made(raw)  # type: ignore[arg-type]

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not raw.is_closed and (data := await reader.read(65536)):
            memoryview(connection.get_buffer(-1))[: len(data)] = data
            connection.buffer_updated(len(data))
            await asyncio.sleep(0)
            if not is_open.is_set():
                writer.write(raw.sent)
                raw.sent = b""
        writer.close()

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    words = ("s_client", "-connect", f"127.0.0.1:{port}", "-tls1_3")
    nowhere = asyncio.subprocess.DEVNULL
    client = await asyncio.create_subprocess_exec(
        "openssl", *words, stdin=asyncio.subprocess.PIPE, stdout=nowhere, stderr=nowhere
    )
    assert client.stdin is not None
    try:
        async with asyncio.timeout(20):
            await is_open.wait()
            raw.sent = b""
            while not raw.is_closed:
                client.stdin.write(b"K\n")  # a key update that asks for one in return
                await asyncio.sleep(0.01)
    finally:
        with suppress(ProcessLookupError):  # it has ended with its connection
            client.kill()
        await client.wait()
        server.close()
        shakes.close()
    assert 300 < len(raw.sent) < 400
