"""PLAIN (RFC 4616): `[authzid]\\0user\\0password` in one token, as Kafka's PlainSaslServer reads it (facts §18.1)."""

import hmac
from collections.abc import Callable

from logyard.broker.security.sasl.mechanism import Identity, LoginRefused

PasswordOf = Callable[[str], str | None]
"""Returns a user's password; None if there is no such user."""

# Compared with when the user does not exist, so that both cases take the same time.
_NOBODYS = b"\0"


class PlainServer:
    """The server's side: one step."""

    is_slow = False

    def __init__(self, password_of: PasswordOf) -> None:
        self._password_of = password_of
        self.claimed: str | None = None
        self.identity: Identity | None = None

    def proves(self, token: bytes) -> str | None:
        parts = _parts(token)
        return parts[1] if len(parts) == 3 else None

    def step(self, token: bytes) -> bytes:
        parts = _parts(token)
        if len(parts) != 3:
            text = f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(parts), 4)}"
            raise LoginRefused(text, text)
        authorization_id, user, password = parts
        self.claimed = user
        for missing, given in (("username", user), ("password", password)):
            if not given:
                text = f"Authentication failed: {missing} not specified"
                raise LoginRefused(text, text)
        known = self._password_of(user)
        expected = _NOBODYS if known is None else known.encode()
        if not hmac.compare_digest(expected, password.encode()) or known is None:
            reason = "no such user" if known is None else "wrong password"
            raise LoginRefused(reason, "Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            text = "Authentication failed: Client requested an authorization id that is different from username"
            raise LoginRefused(text, text)
        self.identity = Identity(user)
        return b""


def _parts(token: bytes) -> list[str]:
    return token.decode("utf-8", "replace").split("\0", 4)


class PlainClient:
    """The client's side: one token, and an empty answer."""

    def __init__(self, user: str, password: str) -> None:
        self._user, self._password = user, password
        self.is_done = False

    def first(self) -> bytes:
        return f"\0{self._user}\0{self._password}".encode()

    def step(self, token: bytes) -> bytes | None:
        self.is_done = True
        return None
