"""Opens the launcher's connections to a secured broker: TLS, then SCRAM (RFC 5802) in Kafka's requests.

As `wire.py` it uses no code of the broker, so that a broker is not checked by its own client code.
"""

import base64
import hashlib
import hmac
import secrets
import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36

Ask = Callable[[int, int, bytes], bytes]
"""Sends a request (API key, version, body) on the connection and returns the body of the answer."""


class LoginRefused(Exception):
    """The broker refuses the log-in, or does not know the password itself."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Whom a launcher trusts, and as whom it logs in by SCRAM-SHA-512."""

    authority: Path
    user: str
    password: str = field(repr=False)

    def secure(self, link: socket.socket, host: str) -> ssl.SSLSocket:
        """Shake hands. Raises OSError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.authority)
        return context.wrap_socket(link, server_hostname=host)

    def log_in(self, ask: Ask) -> None:
        """Log in on a connection. Raises LoginRefused."""
        mechanism = b"SCRAM-SHA-512"
        answer = ask(SASL_HANDSHAKE, 1, struct.pack(">h", len(mechanism)) + mechanism)
        if struct.unpack_from(">h", answer)[0] != 0:
            raise LoginRefused("it does not offer SCRAM-SHA-512")
        own = secrets.token_urlsafe(24)
        first = f"n={self.user.replace('=', '=3D').replace(',', '=2C')},r={own}"
        challenge = _token(ask, f"n,,{first}".encode()).decode()
        parts = dict(part.partition("=")[::2] for part in challenge.split(","))
        if not parts.get("r", "").startswith(own):
            raise LoginRefused("its answer has another nonce")
        salted = hashlib.pbkdf2_hmac("sha512", self.password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
        last = f"c=biws,r={parts['r']}"
        signed = f"{first},{challenge},{last}".encode()
        client_key = hmac.digest(salted, b"Client Key", "sha512")
        signature = hmac.digest(hashlib.sha512(client_key).digest(), signed, "sha512")
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        answered = _token(ask, f"{last},p={base64.b64encode(proof).decode()}".encode())
        expected = hmac.digest(hmac.digest(salted, b"Server Key", "sha512"), signed, "sha512")
        if not hmac.compare_digest(answered, b"v=" + base64.b64encode(expected)):
            raise LoginRefused("it does not know the password itself")


def _token(ask: Ask, token: bytes) -> bytes:
    answer = ask(SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
    code, size = struct.unpack_from(">hh", answer)
    if code != 0:
        raise LoginRefused(f"error {code}")
    (length,) = struct.unpack_from(">i", answer, 4 + max(size, 0))
    start = 8 + max(size, 0)
    return answer[start : start + length]
