"""What is said, and how soon, where another server listens, or for another security protocol; on real sockets."""

import socket
import ssl
import struct
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from logyard.admin.cluster.connection import connect
from logyard.admin.ports import ClusterUnreachable
from logyard.admin.settings import ClusterSettings
from tests.support.authority import Authority
from tests.support.listening import Serve, listening
from tests.support.wire_client import whole

API_VERSIONS, METADATA = 18, 3
UNSUPPORTED, ILLEGAL_SASL_STATE = 35, 34
SIZE_MAX = 100 * 1024 * 1024
NOTHING: Mapping[str, str] = {}
SASL = {"sasl_mechanism": "PLAIN", "username": "u", "password": "p"}


def broker(link: socket.socket, *, logs_in: bool = True) -> None:
    """A broker's listener: it tells its versions; one with log-ins hangs up at anything else then, one without refuses
    them. Both hang up at what is too large to be a request."""
    while True:
        (size,) = struct.unpack(">i", whole(link, 4))
        if not 0 <= size <= SIZE_MAX:
            return
        asked = whole(link, size)
        key, version, correlation = struct.unpack_from(">hhi", asked)
        if key == API_VERSIONS:
            error = UNSUPPORTED if version else 0  # as brokers answer later versions: by the first
            answer = struct.pack(">hi", error, 3) + struct.pack(">9h", API_VERSIONS, 0, 0, METADATA, 0, 1, 17, 0, 1)
        elif logs_in:
            return
        elif key == METADATA:
            answer = struct.pack(">iii", 0, -1, 0)
        else:
            answer = struct.pack(">hi", ILLEGAL_SASL_STATE, 0)
        link.sendall(struct.pack(">ii", 4 + len(answer), correlation) + answer)


def open_broker(link: socket.socket) -> None:
    broker(link, logs_in=False)


def zookeeper(link: socket.socket) -> None:
    """Carries out no word, as its default is for most; and hangs up on what is no request of its protocol."""
    if whole(link, 4) == b"srvr":
        link.sendall(b"srvr is not executed because it is not in the whitelist.\n")


def hangs_up(link: socket.socket) -> None:
    link.recv(4)


def tls(directory: Path, serve: Serve = broker, *, asks_client: bool = False) -> Serve:
    """The same behind TLS; `ca.pem` in the directory is to be trusted."""
    authority = Authority(directory)
    issued = authority.issue("localhost", names=("localhost", "127.0.0.1"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    if asks_client:
        context.load_verify_locations(authority.certificate)
        context.verify_mode = ssl.CERT_REQUIRED

    def behind(link: socket.socket) -> None:
        with context.wrap_socket(link, server_side=True) as secured:
            serve(secured)

    return behind


def said(serve: Serve, protocol: str, more: Mapping[str, str] = NOTHING, timeout_s: float = 60.0) -> str:
    """Why nobody answers, less the address; it must not take long to say."""
    with listening(serve) as server:
        settings = ClusterSettings.read(server, {"security_protocol": protocol, **more})
        begun = time.monotonic()
        with pytest.raises(ClusterUnreachable) as raised:
            connect(settings, settings.bootstrap, timeout_s)
        assert time.monotonic() - begun < 10
        return str(raised.value).replace(server, "X").removeprefix("no broker answered: ")


def test_a_tls_client_at_a_plain_listener() -> None:
    text = "X (it speaks Kafka's protocol without TLS: its security protocol is {}, not {})"
    assert said(broker, "SSL") == text.format("PLAINTEXT", "SSL")
    assert said(broker, "SASL_SSL", SASL) == text.format("SASL_PLAINTEXT", "SASL_SSL")


@pytest.mark.parametrize("asks_client", [False, True])
def test_a_plain_client_at_a_tls_listener(tmp_path: Path, asks_client: bool) -> None:
    serve = tls(tmp_path, asks_client=asks_client)
    assert said(serve, "PLAINTEXT") == "X (it speaks TLS: its security protocol is SSL, not PLAINTEXT)"
    assert said(serve, "SASL_PLAINTEXT", SASL).endswith("its security protocol is SASL_SSL, not SASL_PLAINTEXT)")


@pytest.mark.parametrize("over", ["PLAINTEXT", "SSL"])
def test_a_client_that_does_not_log_in_where_one_has_to_and_the_other_way_round(tmp_path: Path, over: str) -> None:
    def told(serve: Serve, protocol: str, more: Mapping[str, str] = NOTHING) -> str:
        if over == "PLAINTEXT":
            return said(serve, protocol, more)
        place = tmp_path / protocol
        return said(tls(place, serve), protocol, {"ssl_cafile": str(place / "ca.pem"), **more})

    assert told(broker, over) == f"X (it answers those who log in: its security protocol is SASL_{over}, not {over})"
    assert (
        told(open_broker, f"SASL_{over}", SASL)
        == f"X (it knows no log-ins: its security protocol is {over}, not SASL_{over})"
    )


def test_a_broker_whose_certificate_is_not_trusted(tmp_path: Path) -> None:
    assert "its certificate is not trusted (" in said(tls(tmp_path), "SSL")


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_zookeeper(protocol: str) -> None:
    assert said(zookeeper, protocol) == "X (it is a ZooKeeper: the port of a broker is expected)"


def test_who_hangs_up_may_be_a_broker_and_is_asked_again() -> None:
    assert said(hangs_up, "PLAINTEXT", timeout_s=1.0).endswith("check address, protocol and credentials")


def test_another_server_may_be_a_broker_that_starts(tmp_path: Path) -> None:
    with listening(zookeeper) as mistaken, socket.create_server(("127.0.0.1", 0)) as closed:
        starting = f"127.0.0.1:{closed.getsockname()[1]}"
        closed.close()
        settings = ClusterSettings.read(f"{mistaken},{starting}", {})
        begun = time.monotonic()
        with pytest.raises(ClusterUnreachable, match=r"it is a ZooKeeper.*connection refused.*check address"):
            connect(settings, settings.bootstrap, 3.0)
        assert time.monotonic() - begun >= 3.0


def test_a_broker_that_stops_while_it_is_looked_at_is_asked_again() -> None:
    links = 0

    def stops(link: socket.socket) -> None:
        nonlocal links
        links += 1
        if links <= 6:  # three of the client, one look each for ZooKeeper, TLS and log-ins
            broker(link)

    assert said(stops, "PLAINTEXT", timeout_s=1.0).endswith("check address, protocol and credentials")
