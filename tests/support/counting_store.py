"""Deletions as S3 and Google Cloud Storage take them, on loopback and in this process, which counts their requests.

with CountingStore() as server:
    server.s3, server.gcs      # settings of an ObjectStore; both see the same bucket, named bucket
    server.objects             # its keys
    server.requests            # "METHOD path?query" of each request
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

KEYS_MAX = 1000


class CountingStore:
    """One bucket, of which objects are deleted."""

    def __init__(self) -> None:
        self.objects: set[str] = set()
        self.requests: list[str] = []
        self._turn = threading.Lock()
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_DELETE(self) -> None:
                """Google Cloud Storage's: what is not there is an error."""
                there = store.take(f"DELETE {self.path}", [unquote(urlsplit(self.path).path).removeprefix("/bucket/")])
                self._answer(204 if there else 404)

            def do_POST(self) -> None:
                """S3's DeleteObjects: what is not there counts as deleted."""
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                keys = [unescape(key, {"&quot;": '"', "&apos;": "'"}) for key in re.findall(r"<Key>(.*?)</Key>", body)]
                if "delete" not in parse_qs(urlsplit(self.path).query, keep_blank_values=True) or len(keys) > KEYS_MAX:
                    self._answer(400)
                    return
                store.take(f"POST {self.path}", keys)
                told = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
                self._answer(200, f"<DeleteResult>{told}</DeleteResult>".encode())

            def _answer(self, status: int, body: bytes = b"") -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> "CountingStore":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, told: str, keys: list[str]) -> bool:
        """Note a request and delete what it names; returns whether all of that was there."""
        with self._turn:
            self.requests.append(told)
            were_there = self.objects.issuperset(keys)
            self.objects.difference_update(keys)
            return were_there

    @property
    def s3(self) -> dict[str, str]:
        return {"endpoint": self._url, "access_key_id": "A", "secret_access_key": "secret", "region": "us-east-1"}

    @property
    def gcs(self) -> dict[str, str]:
        account = {"gcs_base_url": self._url, "disable_oauth": True, "client_email": "", "private_key": ""}
        return {"service_account_key": json.dumps({**account, "private_key_id": ""}), "allow_http": "true"}

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"
