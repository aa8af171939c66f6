"""Hostile peers of an HTTP side with TLS: half-open handshakes, drips, cut and flipped bytes, heads without an end."""

import asyncio
import ssl

import pytest

from logyard.broker.http import connections
from logyard.broker.znodes.acls import Operation
from tests.support.lease_world import LeaseWorld
from tests.support.longest_turn import longest_turn
from tests.support.secured_http import ALICE, AUTHORITY, SecuredHttp, serving
from tests.support.tls_listener import client_context

PATIENCE_S = 20


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LOOK_S", 0.02)
    monkeypatch.setattr(connections, "HEAD_S", 2.0)
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 8)


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    state = client_context(None, AUTHORITY).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        state.do_handshake()
    return outgoing.read()


async def raw(side: SecuredHttp, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", side.server.port)
    writer.write(data)
    return reader, writer


async def ended(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Return when the broker has closed the connection."""
    async with asyncio.timeout(PATIENCE_S):
        try:
            while await reader.read(65536):
                pass
        except ConnectionError:
            pass
    writer.close()


async def works(side: SecuredHttp) -> bool:
    return (await side.ask("GET", "/leases", ALICE)).status_code == 200


@pytest.mark.parametrize("part", ["[],", "1.5,", '{"":0},'])
async def test_a_body_of_very_many_parts_is_refused(part: str) -> None:
    """Whoever had logged in, without any right, could hold the broker up for 0.3 s by each."""
    body = f'{{"run_id": "r", "more": [{part * (4_000_000 // len(part))}0]}}'
    async with LeaseWorld() as world, serving(world) as side, longest_turn() as longest:
        answer = await side.client.post("/runs/end", content=body, auth=ALICE)
        assert (answer.status_code, answer.json()["error"]) == (413, "too_large")
    assert longest.seconds < 0.09


async def test_half_open_handshakes_shut_nobody_out_and_end() -> None:
    hello = client_hello()
    async with LeaseWorld() as world, serving(world) as side:
        held = [await raw(side, begun) for begun in (b"", hello[:100], hello) for _ in range(10)]
        assert await works(side)
        assert side.server.server is not None
        assert len(side.server.server.server_state.connections) <= connections.CONNECTIONS_MAX
        await asyncio.gather(*(ended(*one) for one in held))
        assert await works(side)


async def test_who_drips_inside_tls_is_cut_off() -> None:
    async with LeaseWorld() as world, serving(world) as side:
        context = client_context(None, AUTHORITY)
        reader, writer = await asyncio.open_connection("127.0.0.1", side.server.port, ssl=context)

        async def drip() -> None:
            writer.write(b"GET /health HTTP/1.1\r\nX-Slow: ")
            while True:
                writer.write(b"x")
                await asyncio.sleep(0.02)

        dripping = asyncio.ensure_future(drip())
        await ended(reader, writer)
        dripping.cancel()
        assert await works(side)


async def test_cut_and_flipped_bytes_of_the_handshake_end_only_their_connection() -> None:
    hello = client_hello()
    async with LeaseWorld() as world, serving(world) as side:
        for at in (*range(12), *range(12, len(hello), 23)):
            flipped = hello[:at] + bytes([hello[at] ^ 0xFF]) + hello[at + 1 :]
            for sent in (hello[:at], flipped, hello + flipped):
                reader, writer = await raw(side, sent)
                writer.write_eof()
                await ended(reader, writer)
        assert await works(side)


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nX-Large: " + b"x" * 100_000,
        b"GET /leases HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer lyr1." + b"a" * 9_000 + b"\r\n\r\n",
        b"GET /leases HTTP/1.1\r\nHost: h\r\nAuthorization: Basic " + b"/" * 9_000 + b"\r\n\r\n",
        b"POST /tokens HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\n\r\n{",
        b"\x00\xff\r\n\r\n",
    ],
)
async def test_odd_heads_are_refused(head: bytes) -> None:
    async with LeaseWorld() as world, serving(world) as side:
        context = client_context(None, AUTHORITY)
        reader, writer = await asyncio.open_connection("127.0.0.1", side.server.port, ssl=context)
        writer.write(head)
        async with asyncio.timeout(PATIENCE_S):
            assert (await reader.readline()).split()[1] in (b"400", b"401")
        writer.close()
        assert await works(side)


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 20, "%D9%A3", "²", "-1"])
async def test_numbers_are_refused_by_a_status_of_their_own(number: str) -> None:
    async with LeaseWorld() as world, serving(world) as side:
        for path in (f"/partitions/t/{number}", f"/decisions/t/{number}", f"/leases/x/segments/{number}/data"):
            assert (await side.ask("GET", path, None)).status_code == 404
            assert (await side.ask("GET", path, ALICE)).status_code == 404


async def test_a_body_for_a_right_is_small() -> None:
    async with LeaseWorld() as world, serving(world) as side:
        body = {"topic": "t", "run_id": "r", "purpose": "audit", "more": "x" * 100_000}
        for path in ("/tokens", "/leases"):
            assert (await side.ask("POST", path, ALICE, body)).status_code == 413
        nested = b"[" * 50_000
        answer = await side.client.post("/tokens", content=nested, auth=ALICE)
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/runs/end", rb'{"run_id": "\ud800"}'),
        ("/runs/end", b'{"run_id": "\xed\xa0\x80"}'),
        ("/runs/end", '{"run_id": "r"}'.encode("utf-16")),
        ("/tokens", rb'{"run_id": "r", "topic": "\uDFFF", "purpose": "audit"}'),
        ("/leases", rb'{"run_id": "\ud800", "topic": "t", "purpose": "audit", "partition": 0}'),
        ("/tokens", b'{"run_id": "r", "topic": "t", "purpose": []}'),
        ("/tokens", b'{"run_id": "r", "topic": "t", "purpose": {}}'),
    ],
)
async def test_odd_bodies_are_refused_by_a_status_of_their_own(path: str, body: bytes) -> None:
    async with LeaseWorld() as world, serving(world) as side:
        side.allow_topic(Operation.READ, Operation.DESCRIBE)
        answer = await side.client.post(path, content=body, auth=ALICE)
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


async def test_a_whole_surrogate_pair_is_a_character() -> None:
    async with LeaseWorld() as world, serving(world) as side:
        answer = await side.client.post("/runs/end", content=rb'{"run_id": "\ud83d\ude00"}', auth=ALICE)
        assert answer.json()["run_id"] == "\U0001f600"


async def test_who_is_refused_before_the_body_has_come_gets_the_answer() -> None:
    async with LeaseWorld() as world, serving(world) as side:
        context = client_context(None, AUTHORITY)
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", side.server.port, ssl=context)
            writer.write(b"POST /leases HTTP/1.1\r\nHost: h\r\nContent-Length: 20\r\n\r\n")
            await asyncio.sleep(0.05)
            writer.write(b"x" * 20)
            async with asyncio.timeout(PATIENCE_S):
                assert b"401" in await reader.readline()
                assert b"unauthorized" in await reader.read()
            writer.close()
        assert await works(side)


async def test_a_refused_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logyard.broker.http.bodies.REST_S", 0.05)
    async with LeaseWorld() as world, serving(world) as side:
        context = client_context(None, AUTHORITY)
        reader, writer = await asyncio.open_connection("127.0.0.1", side.server.port, ssl=context)
        writer.write(b"POST /leases HTTP/1.1\r\nHost: h\r\nContent-Length: 20\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            assert b"401" in await reader.readline()
        await ended(reader, writer)
