"""The launcher's log-in by SCRAM, against a server of a few lines that has the credential of a user's znode."""

import base64
import hashlib
import hmac
import struct
from pathlib import Path

import pytest

from logyard.broker.znodes.scram_credentials import ScramCredential
from logyard.local.wire_login import SASL_AUTHENTICATE, SASL_HANDSHAKE, Credentials, LoginRefused

CREDENTIAL = ScramCredential.of_password("SCRAM-SHA-512", "pw", 4096, b"salt")


class Server:
    """Answers SaslHandshake and SaslAuthenticate; `forges` its last message, `offers` the mechanism or not."""

    def __init__(self, *, forges: bool = False, offers: bool = True, nonce: str = "") -> None:
        self.forges, self.offers, self.nonce = forges, offers, nonce
        self.first = self.challenge = ""

    def ask(self, api: int, version: int, body: bytes) -> bytes:
        if api == SASL_HANDSHAKE:
            assert (version, body) == (1, b"\x00\x0dSCRAM-SHA-512")
            return struct.pack(">hi", 0 if self.offers else 33, 0)
        assert (api, version) == (SASL_AUTHENTICATE, 0)
        message = body[4:].decode()
        if not self.challenge:
            self.first = message.removeprefix("n,,")
            nonce = self.nonce or self.first.rpartition("r=")[2] + "server"
            self.challenge = f"r={nonce},s={base64.b64encode(CREDENTIAL.salt).decode()},i={CREDENTIAL.iterations}"
            return self.answer(self.challenge)
        last, _, proof = message.rpartition(",p=")
        signed = f"{self.first},{self.challenge},{last}".encode()
        signature = hmac.digest(CREDENTIAL.stored_key, signed, "sha512")
        key = bytes(one ^ other for one, other in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.sha512(key).digest() != CREDENTIAL.stored_key:
            return struct.pack(">hh", 58, -1) + struct.pack(">i", 0)
        own = b"forged" if self.forges else CREDENTIAL.server_key
        return self.answer("v=" + base64.b64encode(hmac.digest(own, signed, "sha512")).decode())

    def answer(self, text: str) -> bytes:
        return struct.pack(">hh", 0, -1) + struct.pack(">i", len(text)) + text.encode()


def test_the_right_password_logs_in() -> None:
    server = Server()
    Credentials(Path("ca.pem"), "a=b,c", "pw").log_in(server.ask)
    assert server.first.startswith("n=a=3Db=2Cc,r=")


@pytest.mark.parametrize(
    ("server", "password", "why"),
    [
        (Server(), "wrong", "error 58"),
        (Server(forges=True), "pw", "does not know the password"),
        (Server(offers=False), "pw", "does not offer"),
        (Server(nonce="another"), "pw", "another nonce"),
    ],
)
def test_what_goes_wrong_is_told(server: Server, password: str, why: str) -> None:
    with pytest.raises(LoginRefused, match=why):
        Credentials(Path("ca.pem"), "u", password).log_in(server.ask)


def test_the_password_is_not_in_its_repr() -> None:
    assert "pw" not in repr(Credentials(Path("ca.pem"), "u", "pw"))
