"""A schema registry of the test: the part of Confluent's documented REST interface that readers ask.

with registry({1: {"schema": '"string"'}}) as served:
    SchemaRegistry(served.url)
"""

import base64
import json
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from logyard.local.ports import HOST


def framed(schema: int, payload: bytes) -> bytes:
    """As the registry's serializers write: a 0, the schema's id, for Protobuf the message's indexes in `payload`."""
    return struct.pack(">bi", 0, schema) + payload


@dataclass
class Served:
    """`asked`: the paths, in order; `hang_s`: how long each answer takes; `raw`: what is answered instead, with
    `status` and said to be in `encoding`; `more`: what is there beside what it began with."""

    url: str
    asked: list[str] = field(default_factory=list)
    hang_s: float = 0.0
    drip: bool = False
    raw: bytes | None = None
    login: str | None = None
    redirect: str | None = None
    status: int = 200
    encoding: str = "identity"
    more: dict[str, Mapping[str, Any]] = field(default_factory=dict)


class _Handler(BaseHTTPRequestHandler):
    served: Served
    known: Mapping[str, Mapping[str, Any]]

    def do_GET(self) -> None:
        self.served.asked.append(self.path)
        time.sleep(self.served.hang_s)
        if self.served.drip:
            self._drip()
        elif self.served.redirect is not None:
            self._say(302, b"", ("Location", self.served.redirect))
        elif self.served.login is not None and self.headers["Authorization"] != _basic(self.served.login):
            self._say(401, b"{}")
        elif self.served.raw is not None:
            self._say(self.served.status, self.served.raw, ("Content-Encoding", self.served.encoding))
        elif (found := self.known.get(self.path) or self.served.more.get(self.path)) is not None:
            self._say(200, json.dumps(found).encode())
        else:
            self._say(404, json.dumps({"error_code": 40403, "message": "Schema not found"}).encode())

    def _say(self, status: int, content: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _drip(self) -> None:
        """A byte of a header now and then: no single read takes long."""
        try:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
            for _ in range(200):
                self.wfile.write(b"x")
                self.wfile.flush()
                time.sleep(0.1)
        except OSError:
            pass  # the asker has gone

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def registry(
    schemas: Mapping[int, Mapping[str, Any]], versions: Mapping[tuple[str, int], Mapping[str, Any]] | None = None
) -> Iterator[Served]:
    """Serve schemas by id, and by subject and version, on a free port of loopback."""
    known = {f"/schemas/ids/{number}": schema for number, schema in schemas.items()}
    known |= {f"/subjects/{subject}/versions/{n}": one for (subject, n), one in (versions or {}).items()}

    class Handler(_Handler):
        pass

    server = ThreadingHTTPServer((HOST, 0), Handler)
    served = Handler.served = Served(f"http://{HOST}:{server.server_address[1]}")
    Handler.known = known
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def _basic(login: str) -> str:
    return "Basic " + base64.b64encode(login.encode()).decode()
