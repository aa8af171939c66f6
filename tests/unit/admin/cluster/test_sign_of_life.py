"""Signs of life on real sockets: who answers anything lives; a refused login is told from silence, and tried once."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logyard.admin.cluster.client import KafkaClusterClient
from logyard.admin.cluster.reachability import why_unreachable
from logyard.admin.cluster.sign_of_life import first_sign
from logyard.admin.connector import CommandLauncher
from logyard.admin.ports import AccessRefused
from logyard.admin.recovery.witnesses import HostState, Wire
from logyard.admin.settings import ClusterSettings
from tests.support.authority import Authority

PLAINTEXT = ClusterSettings.read("127.0.0.1:1")
SASL = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "request_timeout_s": 3, "total_timeout_s": 9}
API_VERSIONS, METADATA, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 3, 17, 36
OFFERED = ((API_VERSIONS, 0, 0), (SASL_HANDSHAKE, 0, 1), (SASL_AUTHENTICATE, 0, 1), (METADATA, 0, 5))

Answer = Callable[[int, int], bytes | None]
"""A response's body by the request's API key and version; None: no answer."""


class Peer:
    """A server that answers every request as it is told, and counts them."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[int] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self.address = f"127.0.0.1:{self.port}"

    def accept(self) -> None:
        while True:
            try:
                link, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        with link, contextlib.suppress(ConnectionError):
            while len(head := link.recv(4, socket.MSG_WAITALL)) == 4:
                (size,) = struct.unpack(">i", head)
                key, version, correlation = struct.unpack_from(">hhi", link.recv(size, socket.MSG_WAITALL))
                self.asked.append(key)
                body = self.answer(key, version)
                if body is not None:
                    link.sendall(struct.pack(">ii", len(body) + 4, correlation) + body)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


@contextmanager
def peer(answer: Answer) -> Iterator[Peer]:
    made = Peer(answer)
    thread = threading.Thread(target=made.accept, daemon=True)
    thread.start()
    yield made
    made.close()
    thread.join(5)


def offering(key: int, version: int) -> bytes | None:
    """A broker as far as the login: it offers PLAIN."""
    if key == API_VERSIONS:
        if version > 0:
            return struct.pack(">hihhh", 35, 1, API_VERSIONS, 0, 0)
        return struct.pack(">hi", 0, len(OFFERED)) + b"".join(struct.pack(">hhh", *api) for api in OFFERED)
    return struct.pack(">hih", 0, 1, 5) + b"PLAIN" if key == SASL_HANDSHAKE else None


def refusing(key: int, version: int) -> bytes | None:
    if key != SASL_AUTHENTICATE:
        return offering(key, version)
    return struct.pack(">hhi", 58, -1, 0) + (struct.pack(">q", 0) if version else b"")


def hanging(key: int, version: int) -> bytes | None:
    """The login is taken, by a thread of the network; what works through requests hangs."""
    if key != SASL_AUTHENTICATE:
        return offering(key, version)
    return struct.pack(">hhi", 0, -1, 0) + (struct.pack(">q", 0) if version else b"")


def test_who_ends_the_handshake_is_closed(tmp_path: Path) -> None:
    """Python tells such an end by one of two errors, by its version."""
    authority = Authority(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def end() -> None:
            link, _ = listening.accept()
            link.recv(1)
            link.shutdown(socket.SHUT_WR)
            while link.recv(4096):  # so that it ends, and is not reset
                pass
            link.close()

        ending = threading.Thread(target=end)
        ending.start()
        tls = ClusterSettings.read(
            f"127.0.0.1:{port}", {"security_protocol": "SSL", "ssl_cafile": str(authority.certificate)}
        )
        assert first_sign(tls, "127.0.0.1", port, 5.0)[0] is Wire.CLOSED
        ending.join()


def test_first_signs() -> None:
    with peer(offering) as living, peer(lambda *_: None) as silent:
        assert first_sign(PLAINTEXT, "127.0.0.1", living.port, 1.0)[0] is Wire.ANSWERS
        assert first_sign(PLAINTEXT, "127.0.0.1", silent.port, 0.2)[0] is Wire.SILENT
        closed = living.port
    assert first_sign(PLAINTEXT, "127.0.0.1", closed, 1.0)[0] is Wire.CLOSED
    assert first_sign(PLAINTEXT, "no-such-name.invalid", 9092, 1.0)[0] is Wire.UNREACHABLE
    with peer(offering) as living:
        tls = ClusterSettings.read(living.address, {"security_protocol": "SSL", "ssl_cafile": "/nowhere.pem"})
        assert first_sign(tls, "127.0.0.1", living.port, 1.0)[0] is Wire.UNKNOWN  # our own files are at fault


def test_a_refused_login_is_a_sign_of_life_and_is_not_tried_again() -> None:
    with peer(refusing) as broker:
        settings = ClusterSettings.read(broker.address, SASL, username="u", password="wrong")
        probe = KafkaClusterClient(settings).probe({7: ("127.0.0.1", broker.port)}, 2.0)[7]
        assert (probe.broker, probe.wire) == (7, Wire.REFUSES)
        assert broker.asked.count(SASL_AUTHENTICATE) == 1
        began = time.monotonic()
        with pytest.raises(AccessRefused, match="login of 'u' is refused") as refusal:
            KafkaClusterClient(settings).snapshot()
        assert time.monotonic() - began < 5
        assert broker.asked.count(SASL_AUTHENTICATE) == 2
        assert "'u' or its password is refused by PLAIN" in why_unreachable(settings, refusal.value)


def test_a_broker_that_takes_the_login_and_answers_nothing_is_silent() -> None:
    with peer(hanging) as broker:
        settings = ClusterSettings.read(broker.address, SASL, username="u", password="right")
        assert KafkaClusterClient(settings).probe({7: ("127.0.0.1", broker.port)}, 1.0)[7].wire is Wire.SILENT


def test_what_the_brokers_own_host_says() -> None:
    for said, host_state in (
        ("answers", HostState.ANSWERS),
        ("silent 3", HostState.SILENT),
        ("active", HostState.RUNS),
        ("activating", HostState.STARTING),
        ("inactive", HostState.GONE),
        ("failed", HostState.GONE),
        ("Connection refused", HostState.UNKNOWN),
        ("", HostState.UNKNOWN),
    ):
        assert CommandLauncher(["true"], (), ["echo", said]).host_state(1) is host_state
    assert CommandLauncher(["true"]).host_state(1) is HostState.UNKNOWN
    assert CommandLauncher(["true"], (), ["/nonexistent"]).host_state(1) is HostState.UNKNOWN
    assert CommandLauncher(["true"], (), ["ssh", "{host}"]).host_state(1, "-oProxyCommand=x") is HostState.UNKNOWN
