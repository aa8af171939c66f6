"""A GET on another broker's HTTP side."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from logyard.broker.client import http_get
from logyard.broker.client.http_get import HttpLogin


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"x" * 5000 if self.path == "/large" else b"hello"
        self.send_response(404 if self.path == "/gone" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

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
