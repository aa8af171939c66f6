"""An OAuth token endpoint for tests: client credentials in, a signed token out; brokers check it by its JWKS file.

with TokenEndpoint(tmp_path, {"alice": "alice-oauth-secret"}) as endpoint:
    endpoint.url, endpoint.jwks       # for clients, for brokers
    endpoint.token("alice", life_s=60)
"""

import json
import secrets
import ssl
import threading
import time
from base64 import b64decode
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

ISSUER = "https://identity.test"
AUDIENCE = "kafka"


class TokenEndpoint:
    """`asked` counts what clients asked for; `life_s` is how long a token lives that is asked for by HTTP."""

    def __init__(
        self,
        directory: Path,
        clients: Mapping[str, str],
        life_s: float = 300,
        context: ssl.SSLContext | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.clients, self.life_s, self.asked = dict(clients), life_s, 0
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._kid = secrets.token_hex(4)
        public = json.loads(RSAAlgorithm.to_jwk(self._key.public_key()))
        self.jwks = directory / "jwks.json"
        self.jwks.write_text(json.dumps({"keys": [{**public, "kid": self._kid, "alg": "RS256", "use": "sig"}]}))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}/token"

    def token(self, subject: str, life_s: float | None = None, scope: str = "") -> str:
        now = int(time.time())
        claims: dict[str, object] = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": subject,
            "iat": now,
            "exp": now + int(life_s if life_s is not None else self.life_s),
        }
        if scope:  # Kafka refuses an empty one
            claims["scope"] = scope
        return jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": self._kid})

    def __enter__(self) -> "TokenEndpoint":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
                status, answer = endpoint.answer(self.headers.get("Authorization", ""), form)
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def answer(self, authorization: str, form: Mapping[str, list[str]]) -> tuple[int, dict[str, object]]:
        self.asked += 1
        if form.get("grant_type") != ["client_credentials"]:
            return 400, {"error": "unsupported_grant_type"}
        kind, _, given = authorization.partition(" ")
        if kind.lower() == "basic":
            client, _, secret = b64decode(given).decode().partition(":")
        else:
            client, secret = (form.get(name, [""])[0] for name in ("client_id", "client_secret"))
        if self.clients.get(client) != secret:
            return 401, {"error": "invalid_client"}
        token = self.token(client, scope=form.get("scope", [""])[0])
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": int(self.life_s)}
