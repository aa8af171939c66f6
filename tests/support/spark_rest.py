"""The REST side of a standalone Spark's master, as far as drivers are asked for: answers as Spark 4.2 gives them.

with RestSide({"driver-1": {"driverState": "RUNNING"}}) as rest:      # the keys beside those of every answer
    rest.port, rest.asked                                              # which drivers were asked for
"""

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

_PATH = "/v1/submissions/status/"


class RestSide:
    """`drivers` may be changed meanwhile; `plain`: what it says to everybody instead, as something else would;
    `address`: where it listens, on a port of its own by default."""

    def __init__(
        self,
        drivers: Mapping[str, Mapping[str, Any]],
        plain: bytes | None = None,
        address: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        self.drivers, self.plain = dict(drivers), plain
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer(address, self._handler())
        self.port = int(self._server.server_address[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, driver: str) -> bytes:
        self.asked.append(driver)
        if self.plain is not None:
            return self.plain
        known = self.drivers.get(driver)
        common = {"action": "SubmissionStatusResponse", "serverSparkVersion": "4.2.0", "submissionId": driver}
        return json.dumps(
            {**common, "success": known is not None, **(known or {})}, indent=2, separators=(",", " : ")
        ).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        side = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = side.answer(self.path.removeprefix(_PATH))
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler
