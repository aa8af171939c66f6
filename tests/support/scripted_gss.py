"""A security context of GSSAPI without Kerberos: it takes the tokens that its script names, and signs what it wraps.

GssapiServer(lambda: ScriptedContext([b"hello"], [b"reply"]), names)     # the client's principal is alice@R
"""

import hashlib
from collections.abc import Sequence

from logyard.broker.security.sasl.gssapi import GssFailure

SIGNED = 8


def signed(message: bytes) -> bytes:
    """What `wrap` makes of a message."""
    return hashlib.sha256(message).digest()[:SIGNED] + message


class ScriptedContext:
    """Complete when it has taken all its tokens; `gives` are its answers to them."""

    def __init__(self, takes: Sequence[bytes], gives: Sequence[bytes], peer: str = "alice@R") -> None:
        self._takes, self._gives = list(takes), list(gives)
        self.peer = peer

    @property
    def is_complete(self) -> bool:
        return not self._takes

    def step(self, token: bytes) -> bytes:
        if token != self._takes.pop(0):
            raise GssFailure("Token was invalid")
        return self._gives.pop(0)

    def wrap(self, message: bytes) -> bytes:
        return signed(message)

    def unwrap(self, message: bytes) -> bytes:
        if message != signed(message[SIGNED:]):
            raise GssFailure("A token had an invalid signature")
        return message[SIGNED:]
