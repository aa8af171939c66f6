"""An HTTP proxy before an object store that loses, repeats and delays requests.

with FaultyProxy(server.endpoint) as proxy:
    proxy.at(7, DROP_ANSWER)              # of the requests from now on, this one (0 is the first)
    proxy.on("/_manifest/", DELAY)        # the first PUT whose path has these words
    proxy.endpoint, proxy.requests        # its address, and "METHOD path" of each request
"""

import threading
import time
import urllib.parse
from collections.abc import Callable
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DELAY_S = 1.0
SILENT_S = 5.0


class FaultyProxy:
    """Forwards every request to one server, except where a fault says otherwise."""

    def __init__(self, target: str) -> None:
        self.target = urllib.parse.urlsplit(target)
        self.requests: list[str] = []
        self._turn = threading.Lock()
        self._fault: tuple[Callable[[int, str], bool], Fault] | None = None
        self._again = False
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65_537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                proxy.fault_of(self)(proxy, self, body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> "FaultyProxy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}{self.target.path}"

    def at(self, request: int, fault: "Fault") -> None:
        """Count requests from 0 again; this one meets the fault."""
        self._begin(lambda number, _: number == request, fault)

    def on(self, words: str, fault: "Fault") -> None:
        """The first PUT whose path has these words meets the fault."""
        self._begin(lambda _, told: told.startswith("PUT ") and words in told, fault)

    def always(self, fault: "Fault") -> None:
        """Every request meets the fault."""
        self._begin(lambda *_: True, fault, again=True)

    def quiet(self) -> None:
        """Forward all requests."""
        self._begin(lambda *_: False, FORWARD)

    def _begin(self, meets: Callable[[int, str], bool], fault: "Fault", *, again: bool = False) -> None:
        with self._turn:
            self.requests, self._fault, self._again = [], (meets, fault), again

    def fault_of(self, handler: BaseHTTPRequestHandler) -> "Fault":
        with self._turn:
            told = f"{handler.command} {urllib.parse.unquote(handler.path)}"
            number = len(self.requests)
            self.requests.append(told)
            if self._fault is None or not self._fault[0](number, told):
                return FORWARD
            fault = self._fault[1]
            if not self._again:
                self._fault = None
            return fault

    def ask(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """Send a request on; returns the answer."""
        assert self.target.hostname is not None
        server = HTTPConnection(self.target.hostname, self.target.port, timeout=60)
        try:
            headers = {k: v for k, v in handler.headers.items() if k.lower() != "connection"}
            server.request(handler.command, handler.path, body, headers)
            answer = server.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            server.close()


Fault = Callable[[FaultyProxy, BaseHTTPRequestHandler, bytes], None]


def answer(handler: BaseHTTPRequestHandler, given: tuple[int, list[tuple[str, str]], bytes]) -> None:
    """Send an answer back."""
    status, headers, body = given
    handler.send_response_only(status)
    for name, value in headers:
        if name.lower() not in ("transfer-encoding", "connection", "content-length"):
            handler.send_header(name, value)
    length = {name.lower(): value for name, value in headers}.get("content-length", str(len(body)))
    handler.send_header("Content-Length", length if handler.command == "HEAD" else str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def FORWARD(proxy: FaultyProxy, handler: BaseHTTPRequestHandler, body: bytes) -> None:
    answer(handler, proxy.ask(handler, body))


def DROP_ANSWER(proxy: FaultyProxy, handler: BaseHTTPRequestHandler, body: bytes) -> None:
    """The server acts, and its answer is lost."""
    proxy.ask(handler, body)
    handler.close_connection = True


def NEVER_SEND(proxy: FaultyProxy, handler: BaseHTTPRequestHandler, body: bytes) -> None:
    """The request is lost."""
    handler.close_connection = True


def REPEAT(proxy: FaultyProxy, handler: BaseHTTPRequestHandler, body: bytes) -> None:
    """The request arrives twice, and the second answer comes back: a refusal of a create by its own first arrival."""
    proxy.ask(handler, body)
    answer(handler, proxy.ask(handler, body))


def DELAY(proxy: FaultyProxy, handler: BaseHTTPRequestHandler, body: bytes) -> None:
    """The connection breaks, and the request arrives a second later."""

    def late() -> None:
        time.sleep(DELAY_S)
        proxy.ask(handler, body)

    threading.Thread(target=late, daemon=True).start()
    handler.close_connection = True


def SILENT(proxy: FaultyProxy, handler: BaseHTTPRequestHandler, body: bytes) -> None:
    """The server acts, and keeps the connection open without an answer."""
    proxy.ask(handler, body)
    time.sleep(SILENT_S)
    handler.close_connection = True


def BUSY(proxy: FaultyProxy, handler: BaseHTTPRequestHandler, body: bytes) -> None:
    """The server is overloaded."""
    answer(handler, (503, [], b"<Error><Code>SlowDown</Code></Error>"))


def CONFLICT(proxy: FaultyProxy, handler: BaseHTTPRequestHandler, body: bytes) -> None:
    """S3's answer to two creates at once, of which neither has won yet."""
    answer(handler, (409, [], b"<Error><Code>ConditionalRequestConflict</Code></Error>"))


def before(act: Callable[[], None]) -> Fault:
    """Do something, and lose the request."""

    def fault(proxy: FaultyProxy, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        act()
        handler.close_connection = True

    return fault


def after(act: Callable[[], None]) -> Fault:
    """Let the server act, then do something, and lose the answer."""

    def fault(proxy: FaultyProxy, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        proxy.ask(handler, body)
        act()
        handler.close_connection = True

    return fault
