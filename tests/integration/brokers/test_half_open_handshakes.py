"""5,000 handshakes that begin and never go on, at one real broker: others are served, and its memory is bounded."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from logyard.local.cluster import LocalCluster
from logyard.local.layout import Settings
from tests.support.real_cluster import eventually

pytestmark = pytest.mark.integration

PEERS = 5000
# 2048 of them are let to begin, with 50 KiB each and what OpenSSL keeps besides (decision 28).
MORE_MB = 250
# A connection that finds the queue of `socket.listen.backlog.size` full is tried again by the kernel after 1, 2, 4 and
# 8 s; a broker that waited for the peers would take the 30 s of a handshake.
ANSWER_S = 20.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """One secured broker: its process and its port."""
    cluster = LocalCluster(tmp_path / "yard")
    try:
        cluster.start(Settings(1, secure=True))
        (status,) = cluster.status()
        assert status.pid is not None
        yield status.pid, status.port
    finally:
        cluster.stop()


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1").do_handshake()
    return outgoing.read()


class Asker(threading.Thread):
    """An honest client, which makes a connection of its own for each request; `took_s`: how long each took."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.took_s: list[float] = []
        self.failed: list[str] = []
        self.over = threading.Event()
        self._port = port

    def run(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        while not self.over.wait(0.02):
            begun = time.monotonic()
            try:
                with (
                    socket.create_connection(("127.0.0.1", self._port), 25) as plain,
                    context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
                ):
                    # ApiVersions v0, correlation id 7, no client id
                    connection.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x07\xff\xff")
                    assert connection.recv(8)[4:] == b"\0\0\0\x07"
            except (OSError, AssertionError) as problem:
                self.failed.append(repr(problem))
            self.took_s.append(time.monotonic() - begun)


def test_others_are_served_and_memory_is_bounded(broker: tuple[int, int]) -> None:
    pid, port = broker
    process = psutil.Process(pid)
    before_mb = process.memory_info().rss / 1e6
    asker = Asker(port)
    asker.start()
    hello = client_hello()
    with ExitStack() as held:
        for _ in range(PEERS):
            peer = held.enter_context(socket.create_connection(("127.0.0.1", port), 10))
            peer.sendall(hello)
        time.sleep(2)
        eventually(lambda: len(asker.took_s) > 20, "others are answered")
        most_mb = process.memory_info().rss / 1e6
    eventually(lambda: process.num_fds() < PEERS / 10, "the broker lets go of all")
    asker.over.set()
    asker.join(20)
    assert asker.failed == []
    assert max(asker.took_s) < ANSWER_S
    assert most_mb - before_mb < MORE_MB
