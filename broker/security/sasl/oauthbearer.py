"""OAUTHBEARER (RFC 7628): a token in the client's first message, as Kafka reads it (facts §18.1).

A refused token is answered with a JSON status; the client then sends a byte 1, and only that fails the log-in.
"""

import json
import re
from collections.abc import Callable, Mapping

from logyard.broker.security.sasl.bearer_tokens import TokenRefused, TokenValidator
from logyard.broker.security.sasl.mechanism import Identity, LoginRefused
from logyard.broker.security.sasl.scram_messages import unescape

_KVSEP = "\x01"
_NAME = r"(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+"
_PAIR = rf"[A-Za-z]+=[\x21-\x7E \t\r\n]+{_KVSEP}"
_FIRST = re.compile(rf"n,(?:a=(?P<authzid>{_NAME}))?,{_KVSEP}(?P<pairs>(?:{_PAIR})*){_KVSEP}")
_BEARER = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_.a-zA-Z0-9]+)", re.ASCII)


class OAuthBearerServer:
    """The server's side: one step, two if the token is refused."""

    is_slow = True

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._refused: LoginRefused | None = None
        self.claimed: str | None = None
        self.identity: Identity | None = None

    def proves(self, token: bytes) -> str | None:
        return None  # nobody guesses a signature

    def step(self, token: bytes) -> bytes:
        if self._refused is not None and token == _KVSEP.encode():
            raise self._refused
        self._refused = None
        authorization_id, bearer = parse_first(token)
        try:
            valid = self._validator.validate(bearer)
        except TokenRefused as error:
            status = {"status": error.status} | ({} if error.scope is None else {"scope": error.scope})
            told = json.dumps(status, separators=(", ", ":"))  # as Kafka writes it
            self._refused = LoginRefused(str(error), told)
            return told.encode()
        self.claimed = valid.principal
        if authorization_id not in ("", valid.principal):
            raise LoginRefused(
                "the client asks for an authorization id that is not the token's principal",
                "Authentication failed: Client requested an authorization id that is different from the token's "
                "principal name",
            )
        self.identity = Identity(valid.principal, valid.expires_ms)
        return b""


class OAuthBearerClient:
    """The client's side: one token, and the extensions (KIP-342). `token` may wait; it raises LoginRefused."""

    def __init__(self, token: Callable[[], str], extensions: Mapping[str, str] | None = None) -> None:
        self._token = token
        self._extensions = dict(extensions or {})
        self.is_done = False

    def first(self) -> bytes:
        more = "".join(f"{name}={value}{_KVSEP}" for name, value in self._extensions.items())
        return f"n,,{_KVSEP}auth=Bearer {self._token()}{_KVSEP}{more}{_KVSEP}".encode()

    def step(self, token: bytes) -> bytes | None:
        if token:
            return _KVSEP.encode()  # a refusal, which the server tells as an error now
        self.is_done = True
        return None


def parse_first(message: bytes) -> tuple[str, str]:
    """Return the authorization id (empty: none) and the token of the client's first message. Raises LoginRefused."""
    found = _FIRST.fullmatch(message.decode("latin-1"))
    if found is None:
        raise LoginRefused("the client's first message is no OAUTHBEARER message")
    pairs = dict(pair.partition("=")[::2] for pair in found["pairs"].split(_KVSEP) if pair)
    bearer = _BEARER.fullmatch(pairs.get("auth", ""))
    if bearer is None or bearer["scheme"].lower() != "bearer":
        raise LoginRefused("the client's first message has no bearer token")
    return unescape(found["authzid"] or ""), bearer["token"]
