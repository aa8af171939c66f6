"""SCRAM credentials (RFC 5802) as they are in a user's znode, beside the quotas (facts §18.1). Pure.

A credential's keys are as good as a password to whoever wants to log in as a broker: none of them is in a repr or in an
error.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from logyard.broker.errors import CorruptData

# Kafka's names by their number on the wire; 0 is unknown.
MECHANISMS: Final[Mapping[int, str]] = MappingProxyType({1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"})
DIGESTS: Final[Mapping[str, str]] = MappingProxyType({"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"})
"""hashlib's names of the digests by mechanism."""

ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
_KEYS = ("salt", "stored_key", "server_key")


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server keeps of a password for one mechanism."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of(cls, mechanism: str, salt: bytes, salted_password: bytes, iterations: int) -> "ScramCredential":
        """Derive the keys from a salted password: three short hashes, however many the iterations were."""
        digest = DIGESTS[mechanism]
        client_key = hmac.digest(salted_password, b"Client Key", digest)
        stored_key = hashlib.new(digest, client_key).digest()
        return cls(salt, stored_key, hmac.digest(salted_password, b"Server Key", digest), iterations)

    @classmethod
    def of_password(cls, mechanism: str, password: str, iterations: int, salt: bytes) -> "ScramCredential":
        """Derive the keys from a password; takes milliseconds: never call it on the event loop."""
        salted = hashlib.pbkdf2_hmac(DIGESTS[mechanism], password.encode(), salt, iterations)
        return cls.of(mechanism, salt, salted, iterations)

    @classmethod
    def parse(cls, text: str) -> "ScramCredential":
        """Read `salt=…,stored_key=…,server_key=…,iterations=N`, base64, in any order; no other key may be there.

        Raises CorruptData, which has nothing of the text.
        """
        parts = dict(part.partition("=")[::2] for part in text.split(","))
        if parts.keys() != {*_KEYS, "iterations"}:
            raise CorruptData("a SCRAM credential has salt, stored_key, server_key and iterations, and nothing else")
        try:
            salt, stored, server = (base64.b64decode(parts[name], validate=True) for name in _KEYS)
            return cls(salt, stored, server, int(parts["iterations"]))
        except (ValueError, binascii.Error):
            raise CorruptData("a SCRAM credential has a part that is not base64, or no number of iterations") from None

    def text(self) -> str:
        """Return the value in the znode."""
        values = zip(_KEYS, (self.salt, self.stored_key, self.server_key), strict=True)
        encoded = ",".join(f"{name}={base64.b64encode(value).decode()}" for name, value in values)
        return f"{encoded},iterations={self.iterations}"
