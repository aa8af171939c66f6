import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from logyard.local import wire


def view_bytes(controller: int = 1) -> bytes:
    host = b"127.0.0.1"
    body = struct.pack(">i", 2)
    for broker, port in ((0, 9092), (1, 9093)):
        body += struct.pack(">ih", broker, len(host)) + host + struct.pack(">i", port)
        body += struct.pack(">h", -1) if broker == 0 else struct.pack(">h", 2) + b"r1"
    return body + struct.pack(">ii", controller, 0)


@contextmanager
def answering(payload: bytes) -> Iterator[int]:
    """A server that sends these bytes to its first caller."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            link, _ = server.accept()
            with link:
                link.recv(65536)
                link.sendall(payload)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def frame(body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, 1) + body


def test_metadata_names_brokers_and_controller() -> None:
    with answering(frame(view_bytes())) as port:
        view = wire.ask_metadata("127.0.0.1", port)
    assert view == wire.View({0: ("127.0.0.1", 9092), 1: ("127.0.0.1", 9093)}, controller=1)


@pytest.mark.parametrize("cut", [0, 3, 9, 20, 40])
def test_a_response_cut_short_is_an_error_not_a_view(cut: int) -> None:
    with pytest.raises(wire.WireError):
        wire.parse_metadata(view_bytes()[:cut])


def test_api_versions() -> None:
    with answering(frame(struct.pack(">hihhhhhh", 0, 2, 3, 0, 12, 18, 0, 4))) as port:
        assert wire.ask_api_versions("127.0.0.1", port) == {3: (0, 12), 18: (0, 4)}


@pytest.mark.parametrize("payload", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", frame(b"\x00\x23\x00\x00\x00\x00")])
def test_strangers_are_told_from_brokers(payload: bytes) -> None:
    with answering(payload) as port, pytest.raises(wire.WireError):
        wire.ask_api_versions("127.0.0.1", port)


def test_nobody_there() -> None:
    with pytest.raises(wire.WireError, match="does not answer"):
        wire.ask_metadata("127.0.0.1", 1)
