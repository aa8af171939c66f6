"""Kinds of keys, versions and suites that meet or do not, what a refused client is told, and stores that change."""

import asyncio
import datetime
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from logyard.broker.tls.context import read_stores, server_context
from tests.support.certificates import Authority, Issued
from tests.support.tls_listener import (
    AUTHORITY,
    CLIENT,
    OTHERS,
    Echo,
    answer,
    client_context,
    config,
    connect,
    framed,
    listening,
    load,
    settings,
)
from tests.unit.tls.test_stores import handshake
from tests.unit.tls.test_updates import CA, ONE, P, World

Main = Callable[[], Coroutine[Any, Any, None]]


# -- clients' certificates on a listener without a log-in


@pytest.mark.parametrize(
    ("asked", "listeners", "none", "untrusted"),
    [
        ("none", "", True, True),
        ("requested", "", True, False),
        ("required", "", False, False),
        ("required", "none", True, True),  # the listener's own setting is before the broker's
        ("none", "required", False, False),
    ],
)
def test_who_is_let_in(run: Callable[[Main], None], asked: str, listeners: str, none: bool, untrusted: bool) -> None:
    given = settings(ssl_client_auth=asked)
    if listeners:
        given["listener.name.ssl.ssl.client.auth"] = listeners

    async def main() -> None:
        echo = Echo()
        async with listening(echo, given) as listener:

            async def is_served(own: Issued | None) -> bool:
                try:
                    reader, writer = await connect(listener, client_context(own))
                    writer.write(framed(b"ab"))
                    found = await answer(reader)
                    writer.close()
                except (OSError, EOFError):
                    return False
                return found == b"ab"

            assert [await is_served(own) for own in (CLIENT, None, OTHERS.issue("x"))] == [True, none, untrusted]
        if "none" in (listeners or asked):
            assert set(echo.principals) == {"User:ANONYMOUS"}

    run(main)


def test_the_host_of_a_client_is_not_checked(run: Callable[[Main], None]) -> None:
    async def main() -> None:
        echo = Echo()
        async with listening(echo, settings(ssl_client_auth="required")) as listener:
            reader, writer = await connect(listener, client_context(AUTHORITY.issue("c", ("non-existent.example",))))
            writer.write(framed(b"ab"))
            assert await answer(reader) == b"ab"
            writer.close()
        assert echo.principals == ["User:CN=c"]

    run(main)


@pytest.mark.parametrize("own", [None, OTHERS.issue("stranger")])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_refused_client_is_told_and_not_only_cut_off(
    run: Callable[[Main], None], own: Issued | None, version: ssl.TLSVersion
) -> None:
    context = client_context(own)
    context.maximum_version = version

    def ask(port: int) -> None:
        with (
            socket.create_connection(("127.0.0.1", port)) as sock,
            context.wrap_socket(sock, server_hostname="127.0.0.1") as tls,
        ):
            tls.sendall(framed(b"ab"))
            tls.recv(1)

    async def main() -> None:
        async with listening(Echo(), settings(ssl_client_auth="required")) as listener:
            with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
                await asyncio.to_thread(ask, listener.port)

    run(main)


# -- keys, versions, suites


def issued(key: Any) -> Issued:
    """A certificate that signed itself, for any kind of key."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "own")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Issued(key, (made,))


def pem(issuer: Issued) -> str:
    return issuer.chain[0].public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("kind", ["RSA", "EC"])
def test_kinds_of_keys(kind: str, version: ssl.TLSVersion) -> None:
    """On both sides. DSA is not among the suites of Python's ssl."""
    make = (
        (lambda: rsa.generate_private_key(65537, 2048))
        if kind == "RSA"
        else (lambda: ec.generate_private_key(ec.SECP256R1()))
    )
    own, other = issued(make()), issued(make())
    given = settings(own, None, ssl_client_auth="required") | {"ssl.truststore.certificates": pem(other)}
    read = config(given).listener("SSL")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=pem(own))
    client.maximum_version = version
    load(client, other)
    done = handshake(server_context(read, *read_stores(read)), client, "localhost")
    assert done.version() == {ssl.TLSVersion.TLSv1_2: "TLSv1.2"}.get(version, "TLSv1.3")


def server_side(more: dict[str, str]) -> ssl.SSLContext:
    read = config(settings() | more).listener("SSL")
    return server_context(read, *read_stores(read))


@pytest.mark.parametrize("theirs", [("TLSv1.2",), ("TLSv1.3",), ("TLSv1.2", "TLSv1.3")])
@pytest.mark.parametrize("ours", [("TLSv1.2",), ("TLSv1.3",), ("TLSv1.2", "TLSv1.3"), ("TLSv1.3", "TLSv1.2")])
def test_the_highest_version_that_both_have(ours: tuple[str, ...], theirs: tuple[str, ...]) -> None:
    client, names = client_context(), {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
    client.minimum_version, client.maximum_version = names[theirs[0]], names[theirs[-1]]
    server = server_side({"ssl.enabled.protocols": ",".join(ours)})
    both = sorted(set(ours) & set(theirs))
    if both:
        assert handshake(server, client).version() == both[-1]
    else:
        with pytest.raises(ssl.SSLError):
            handshake(server, client)


def test_suites_that_do_not_meet() -> None:
    """The broker's restrict TLS 1.2; with a client that has others only there is no connection."""
    server = server_side(
        {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ssl.enabled.protocols": "TLSv1.2"}
    )
    client = client_context()
    client.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    with pytest.raises(ssl.SSLError):
        handshake(server, client)
    client.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    assert handshake(server, client).version() == "TLSv1.2"


# -- stores that change while connections are open


class Both:
    """An open connection in memory, to see that it goes on."""

    def __init__(self, server: ssl.SSLContext, client: ssl.SSLContext) -> None:
        self._to_server, self._to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._server = server.wrap_bio(self._to_server, self._to_client, server_side=True)
        self._client = client.wrap_bio(self._to_client, self._to_server, server_hostname="127.0.0.1")
        for side in (self._client, self._server) * 3:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue

    def goes_on(self) -> bool:
        self._client.write(b"ab")
        self._server.write(self._server.read(2))
        return self._client.read(2) == b"ab"


def test_new_connections_meet_the_new_certificate_and_open_ones_go_on(tmp_path: Path) -> None:
    world, old = World(tmp_path, between="PLAINTEXT"), client_context(trusted=CA)
    opened, other = Both(world.context, old), Authority("new CA")
    path = other.issue("broker", ("127.0.0.1", "localhost", "*.example.com")).write_pem(tmp_path / "two.pem")
    world.take({f"{P}ssl.keystore.location": str(path)})
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(world.context, old)
    new = client_context(trusted=other)
    handshake(world.context, new)
    assert opened.goes_on()
    # Fewer names, and a store that is not there, leave what is.
    poorer = other.issue("broker", ("127.0.0.1", "localhost")).write_pem(tmp_path / "three.pem")
    for wrong in (str(poorer), "/none"):
        world.refused({f"{P}ssl.keystore.location": wrong})
        world.take({f"{P}ssl.keystore.location": wrong})
        handshake(world.context, new)
    assert opened.goes_on()


def test_new_connections_are_checked_by_the_new_trust_and_open_ones_go_on(tmp_path: Path) -> None:
    asked = {f"{P}ssl.client.auth": "required"}
    world, other = World(tmp_path, ONE, "PLAINTEXT", **asked), Authority("new CA")
    old, new = (client_context(of.issue("client"), CA) for of in (CA, other))
    opened = Both(world.context, old)
    world.take({f"{P}ssl.truststore.location": str(other.write_pem(tmp_path / "other.pem"))})
    assert not lets_in(world.context, old)
    assert lets_in(world.context, new)
    assert opened.goes_on()
    for wrong in ({f"{P}ssl.truststore.type": "INVALID"}, {f"{P}ssl.truststore.location": "/none"}):
        world.refused(wrong)
        world.take(wrong)
        assert lets_in(world.context, new)


def test_a_key_as_text_is_changed_and_needs_no_trust_store(tmp_path: Path) -> None:
    def text(own: Issued) -> dict[str, str]:
        return {f"{P}ssl.keystore.key": own.key_pem, f"{P}ssl.keystore.certificate.chain": own.chain_pem}

    none = {f"{P}ssl.keystore.location": "", f"{P}ssl.truststore.location": ""}
    world, other = World(tmp_path, ONE, "PLAINTEXT", **none, **text(ONE)), Authority("new CA")
    handshake(world.context, client_context(trusted=CA))
    world.take(text(other.issue("broker", ("127.0.0.1", "localhost"))))
    handshake(world.context, client_context(trusted=other))
    assert "another distinguished name" in world.refused(text(other.issue("stranger", ("127.0.0.1", "localhost"))))


def lets_in(server: ssl.SSLContext, client: ssl.SSLContext) -> bool:
    try:
        return Both(server, client).goes_on()
    except ssl.SSLError:
        return False


async def test_a_client_may_change_its_keys() -> None:
    """TLS 1.3's key updates, with and without one in return, which `openssl s_client` sends."""
    async with listening(Echo(), settings()) as listener:
        client = await asyncio.create_subprocess_exec(
            *("openssl", "s_client", "-tls1_3", "-connect", f"127.0.0.1:{listener.port}"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(20):
                await echoes_between_new_keys(client)
        finally:
            client.kill()
            await client.wait()


async def echoes_between_new_keys(client: asyncio.subprocess.Process) -> None:
    assert client.stdin is not None
    assert client.stdout is not None
    for command, body in ((b"", b"ab\n"), (b"k\n", b"cd\n"), (b"K\n", b"ef\n")):
        client.stdin.write(command)
        await asyncio.sleep(0.3)  # it takes a command only as a whole read
        client.stdin.write(framed(body))
        await client.stdout.readuntil(framed(body))
