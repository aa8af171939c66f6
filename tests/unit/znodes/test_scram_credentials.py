"""SCRAM credentials in a user's znode, against the exchange printed in RFC 7677."""

import base64
import hmac

import pytest

from logyard.broker.errors import CorruptData
from logyard.broker.znodes.scram_credentials import ScramCredential

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
# RFC 7677, section 3: the messages that are signed, the client's proof, the server's signature.
SIGNED = (
    b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
)
SIGNATURE = base64.b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_a_password_gives_the_keys_of_the_rfc() -> None:
    credential = ScramCredential.of_password("SCRAM-SHA-256", "pencil", 4096, SALT)
    assert hmac.digest(credential.server_key, SIGNED, "sha256") == SIGNATURE
    assert ScramCredential.parse(credential.text()) == credential


def test_its_text_is_kafka_s() -> None:
    credential = ScramCredential(b"salt", b"stored", b"server", 8192)
    assert credential.text() == "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=8192"
    assert ScramCredential.parse("iterations=8192,server_key=c2VydmVy,salt=c2FsdA==,stored_key=c3RvcmVk") == credential


@pytest.mark.parametrize(
    "text",
    [
        "",
        "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy",
        "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=many",
        "salt=c2FsdA==,stored_key=!,server_key=c2VydmVy,iterations=1",
        "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=1,hidden=c2VydmVy",
    ],
)
def test_another_text_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(CorruptData) as refused:
        ScramCredential.parse(text)
    assert "c2VydmVy" not in str(refused.value)
    assert "c3RvcmVk" not in str(refused.value)


def test_its_keys_are_not_in_its_repr() -> None:
    shown = repr(ScramCredential(b"salt", b"stored", b"server", 8192))
    assert shown == "ScramCredential(iterations=8192)"
