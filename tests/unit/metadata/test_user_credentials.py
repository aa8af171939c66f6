"""Users' SCRAM credentials: set, replaced, gone, and unreadable ones that let nobody in."""

import pytest

from logyard.broker.errors import CorruptData
from logyard.broker.metadata.user_credentials import UserCredentials
from logyard.broker.znodes.scram_credentials import ScramCredential

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
ONE = ScramCredential.of_password(SHA_256, "one", 4096, b"salt")
TWO = ScramCredential.of_password(SHA_512, "two", 4096, b"salt")


def test_a_users_credentials_are_those_of_the_znode() -> None:
    known = UserCredentials()
    known.take("a%20b", {SHA_256: ONE.text(), "producer_byte_rate": "1"})
    assert known.scram(SHA_256, "a b") == ONE
    assert known.scram(SHA_512, "a b") is None
    known.take("a%20b", {SHA_512: TWO.text()})
    assert known.scram(SHA_256, "a b") is None
    assert known.scram(SHA_512, "a b") == TWO
    known.take("a%20b", {})
    assert known.scram(SHA_512, "a b") is None


def test_defaults_and_clients_of_users_have_none() -> None:
    known = UserCredentials()
    for entity in ("<default>", "a/clients/c"):
        known.take(entity, {SHA_256: ONE.text()})
    assert known.scram(SHA_256, "<default>") is None
    assert known.scram(SHA_256, "a/clients/c") is None
    assert known.scram(SHA_256, "a") is None


def test_an_unreadable_credential_lets_nobody_in() -> None:
    known = UserCredentials()
    known.take("a", {SHA_256: ONE.text(), SHA_512: TWO.text()})
    with pytest.raises(CorruptData) as caught:
        known.take("a", {SHA_256: "secret=1", SHA_512: TWO.text()})
    assert "secret=1" not in str(caught.value)
    assert known.scram(SHA_256, "a") is None
    assert known.scram(SHA_512, "a") == TWO
    assert "UserCredentials object" in repr(known)
