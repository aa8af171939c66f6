"""Deletions as S3, Google Cloud Storage and Azure take them, on loopback and in this process: requests are counted.

with CountingStore() as server:
    server.s3, server.gcs, server.azure  # settings of an ObjectStore; all see the same bucket, named bucket
    server.objects             # its keys
    server.kept                # keys that may not be deleted (403)
    server.requests            # "METHOD path?query" of each request
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

KEYS_MAX, KEYS_MAX_OF_AZURE = 1000, 256
DONE, FORBIDDEN = "202 Accepted", "403 It is not yours."
GONE = "404 The specified blob does not exist.\r\nx-ms-error-code: BlobNotFound\r\n"


class CountingStore:
    """One bucket, of which objects are deleted."""

    def __init__(self) -> None:
        self.objects: set[str] = set()
        self.kept: set[str] = set()
        self.requests: list[str] = []
        self._turn = threading.Lock()
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_DELETE(self) -> None:
                """Google Cloud Storage's and Azure's: what is not there is an error."""
                key = unquote(urlsplit(self.path).path).removeprefix("/bucket/")
                if key in store.kept:
                    store.take(f"DELETE {self.path}", [])
                    self._answer(403)
                    return
                there = store.take(f"DELETE {self.path}", [key])
                self._answer(204 if there else 404)

            def do_POST(self) -> None:
                """S3's DeleteObjects: what is not there counts as deleted."""
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                if "comp=batch" in self.path:
                    self._batch(body)
                    return
                keys = [unescape(key, {"&quot;": '"', "&apos;": "'"}) for key in re.findall(r"<Key>(.*?)</Key>", body)]
                if "delete" not in parse_qs(urlsplit(self.path).query, keep_blank_values=True) or len(keys) > KEYS_MAX:
                    self._answer(400)
                    return
                store.take(f"POST {self.path}", [key for key in keys if key not in store.kept])
                told = "".join(_told(key, done=key not in store.kept) for key in keys)
                self._answer(200, f"<DeleteResult>{told}</DeleteResult>".encode())

            def _batch(self, body: str) -> None:
                """Azure's: each deletion has an answer of its own, whatever becomes of the others."""
                paths = re.findall(r"^DELETE (\S+) HTTP", body, re.MULTILINE)
                if len(paths) > KEYS_MAX_OF_AZURE:
                    self._answer(400)
                    return
                answers = store.take_each(f"POST {self.path}", [unquote(p).removeprefix("/bucket/") for p in paths])
                told = "".join(
                    f"--b\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\nHTTP/1.1 {one}\r\n\r\n"
                    for number, one in enumerate(answers)
                )
                self._answer(202, f"{told}--b--\r\n".encode(), "multipart/mixed; boundary=b")

            def _answer(self, status: int, body: bytes = b"", kind: str = "application/xml") -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
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

    def take_each(self, told: str, keys: list[str]) -> list[str]:
        """Note a request and delete what it names; returns the status of each."""
        with self._turn:
            self.requests.append(told)
            answers = [FORBIDDEN if k in self.kept else DONE if k in self.objects else GONE for k in keys]
            self.objects -= {*keys} - self.kept
            return answers

    @property
    def s3(self) -> dict[str, str]:
        return {"endpoint": self._url, "access_key_id": "A", "secret_access_key": "secret", "region": "us-east-1"}

    @property
    def gcs(self) -> dict[str, str]:
        account = {"gcs_base_url": self._url, "disable_oauth": True, "client_email": "", "private_key": ""}
        return {"service_account_key": json.dumps({**account, "private_key_id": ""}), "allow_http": "true"}

    @property
    def azure(self) -> dict[str, str]:
        return {"endpoint": self._url, "account_name": "a", "account_key": "c2VjcmV0"}

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"


def _told(key: str, *, done: bool) -> str:
    """What S3 says of one key."""
    named = f"<Key>{escape(key)}</Key>"
    said = "<Code>AccessDenied</Code><Message>It is not yours.</Message>"
    return f"<Deleted>{named}</Deleted>" if done else f"<Error>{named}{said}</Error>"
