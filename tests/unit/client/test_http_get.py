"""A GET on another broker's HTTP side."""

import select
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from logyard.broker.client import http_get
from logyard.broker.client.http_get import HttpLogin


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"x" * 5000 if self.path in ("/large", "/slow") else b"hello"
        self.send_response(404 if self.path == "/gone" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path == "/slow":
            for _ in body:
                self.wfile.write(b"x")
                if select.select([self.connection], [], [], 0.02)[0]:
                    return  # the client has left
        self.wfile.write(body[:2] if self.path == "/half" else body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_body_of_an_answer(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert http_get.get(address, "/decisions", HttpLogin()) == b"hello"
    monkeypatch.setattr(http_get, "ANSWER_BYTES_MAX", 4999)
    for path, reason in (("/gone", "status 404"), ("/large", "more than 4999 bytes")):
        with pytest.raises(http_get.NoAnswer, match=reason):
            http_get.get(address, path, HttpLogin())


def test_nobody_there() -> None:
    with pytest.raises(http_get.NoAnswer, match="ConnectionRefusedError"):
        http_get.get("127.0.0.1:1", "/decisions", HttpLogin())


@pytest.mark.parametrize("place", ["a..b:1", "x" * 70 + ":1", "host:port", "[::1:9", "127.0.0.1:99999"])
@pytest.mark.parametrize("scheme", ["", "https://"])
def test_what_is_no_address(scheme: str, place: str) -> None:
    """Another broker's znode says where it is: whatever it says, only that broker cannot be asked."""
    with pytest.raises(http_get.NoAnswer, match="GET http"):
        http_get.get(scheme + place, "/decisions", HttpLogin())


def test_an_answer_that_comes_byte_by_byte_ends(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_get, "ANSWER_S_MAX", 0.1)
    with pytest.raises(http_get.NoAnswer, match="not there after"):
        http_get.get(address, "/slow", HttpLogin())


def test_half_an_answer_is_none(address: str) -> None:
    with pytest.raises(http_get.NoAnswer, match="IncompleteRead"):
        http_get.get(address, "/half", HttpLogin())
