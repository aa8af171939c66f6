"""SCRAM-SHA-256 and SCRAM-SHA-512: both sides of the exchange (RFC 5802, RFC 7677, facts §18.1).

A client that names the extension `tokenauth=true` logs in with a delegation token: the user is the token's id, and the
identity its owner (KIP-48).
"""

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass

from logyard.broker.security.sasl import scram_messages as messages
from logyard.broker.security.sasl.mechanism import Identity, LoginRefused
from logyard.broker.znodes.scram_credentials import DIGESTS, ITERATIONS_MIN, ScramCredential

TOKEN_AUTH = "tokenauth"
# A server asks a client for this many rounds at most: each takes half a microsecond, and it is the server who chooses.
CLIENT_ITERATIONS_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class TokenCredential:
    """The credential of a delegation token, the name of its owner, and when it expires (wall clock)."""

    credential: ScramCredential
    owner: str
    expires_ms: int


@dataclass(frozen=True, slots=True)
class ScramLookup:
    """Where a server finds credentials: by user's name, and by a token's id. None: there is none."""

    of_user: Callable[[str], ScramCredential | None]
    of_token: Callable[[str], TokenCredential | None]


class ScramServer:
    """The server's side: two steps."""

    is_slow = False

    def __init__(self, mechanism: str, lookup: ScramLookup, new_nonce: Callable[[], str]) -> None:
        self._mechanism = mechanism
        self._lookup = lookup
        self._new_nonce = new_nonce
        self.claimed: str | None = None
        self.identity: Identity | None = None
        self._pending: Identity | None = None
        self._credential: ScramCredential | None = None
        self._nonce = ""
        self._signed = ""  # the messages so far, as both sides sign them

    def proves(self, token: bytes) -> str | None:
        return None if self._credential is None else self.claimed

    def step(self, token: bytes) -> bytes:
        try:
            return self._first(token) if self._credential is None else self._final(token, self._credential)
        except ValueError as error:
            raise LoginRefused(str(error)) from None

    def _first(self, token: bytes) -> bytes:
        first = messages.client_first(token)
        self.claimed = first.user
        if first.extensions.get(TOKEN_AUTH, "").lower() == "true":
            credential, self._pending = self._of_token(first.user)
        else:
            found = self._lookup.of_user(first.user)
            if found is None:
                raise LoginRefused(f"no such user, or one without a credential for {self._mechanism}")
            credential, self._pending = found, Identity(first.user)
        if first.authorization_id not in ("", first.user):
            text = "Authentication failed: Client requested an authorization id that is different from username"
            raise LoginRefused(text, text)
        if credential.iterations < ITERATIONS_MIN:
            raise LoginRefused(
                f"the credential has {credential.iterations} iterations, at least {ITERATIONS_MIN} are needed: "
                "set the password again"
            )
        self._nonce = first.nonce + self._new_nonce()
        answer = messages.server_first_text(self._nonce, credential.salt, credential.iterations)
        self._signed = f"{first.bare},{answer}"
        self._credential = credential
        return answer.encode("ascii")

    def _of_token(self, token_id: str) -> tuple[ScramCredential, Identity]:
        found = self._lookup.of_token(token_id)
        if found is None:
            raise LoginRefused("no such delegation token")
        return found.credential, Identity(found.owner, found.expires_ms, is_token=True)

    def _final(self, token: bytes, credential: ScramCredential) -> bytes:
        final = messages.client_final(token)
        # As Kafka 3.9 compares: librdkafka before 2.6.1 has its own nonce in front once more. Both sides sign the text.
        if not final.nonce.endswith(self._nonce):
            raise LoginRefused("the nonce of the client's last message is another one")
        algorithm = DIGESTS[self._mechanism]
        signed = f"{self._signed},{final.unsigned}".encode("latin-1")
        signature = hmac.digest(credential.stored_key, signed, algorithm)
        if len(final.proof) != len(signature):
            raise LoginRefused("the proof has a wrong length")
        key = _xor(final.proof, signature)
        if not hmac.compare_digest(hashlib.new(algorithm, key).digest(), credential.stored_key):
            raise LoginRefused("wrong password")
        self.identity = self._pending
        return b"v=" + base64.b64encode(hmac.digest(credential.server_key, signed, algorithm))


class ScramClient:
    """The client's side. The step that takes the server's first message needs milliseconds: call it in a thread."""

    def __init__(
        self, mechanism: str, user: str, password: str, nonce: str, extensions: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        named = "".join(f",{name}={value}" for name, value in extensions)
        self._signed = f"n={messages.escape(user)},r={nonce}{named}"
        self._server_signature = b""
        self.is_done = False

    def first(self) -> bytes:
        try:
            return f"n,,{self._signed}".encode("ascii")
        except UnicodeEncodeError:
            raise LoginRefused("SCRAM has user names of ASCII only: choose another user") from None

    def step(self, token: bytes) -> bytes | None:
        try:
            if not self._server_signature:
                return self._prove(token)
            self._check(token)
            return None
        except ValueError as error:
            raise LoginRefused(f"the server's message cannot be read: {error}") from None

    def _prove(self, token: bytes) -> bytes:
        first = messages.server_first(token)
        if not first.nonce.startswith(self._nonce):
            raise LoginRefused("the server's nonce does not begin with the client's")
        if not ITERATIONS_MIN <= first.iterations <= CLIENT_ITERATIONS_MAX:
            raise LoginRefused(
                f"the server asks for {first.iterations} iterations, {ITERATIONS_MIN} to {CLIENT_ITERATIONS_MAX} "
                "are accepted"
            )
        algorithm = DIGESTS[self._mechanism]
        salted = hashlib.pbkdf2_hmac(algorithm, self._password.encode(), first.salt, first.iterations)
        unsigned = f"c=biws,r={first.nonce}"
        signed = f"{self._signed},{first.text},{unsigned}".encode("latin-1")
        key = hmac.digest(salted, b"Client Key", algorithm)
        signature = hmac.digest(hashlib.new(algorithm, key).digest(), signed, algorithm)
        self._server_signature = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), signed, algorithm)
        return f"{unsigned},p={base64.b64encode(_xor(key, signature)).decode()}".encode("ascii")

    def _check(self, token: bytes) -> None:
        final = messages.server_final(token)
        if final.error is not None:
            raise LoginRefused(f"the server refuses: {final.error}")
        if not hmac.compare_digest(final.signature, self._server_signature):
            raise LoginRefused("the server does not know the password")
        self.is_done = True


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
