"""Stored passwords: Kafka's format both ways, and nothing of them in any message."""

import pytest

from logyard.broker.config.broker import BrokerConfig
from logyard.broker.tls.password_encoder import PasswordEncoder

HEAD = {"zookeeper.connect": "z:1"}
PASSWORD = "sword=fish, ä"


def encoder(**given: str) -> PasswordEncoder:
    keys = {f"password.encoder.{name.replace('_', '.')}": value for name, value in given.items()}
    return PasswordEncoder(BrokerConfig.parse("", HEAD | keys))


def test_what_is_written_can_be_read() -> None:
    written = encoder(secret="a").encode(PASSWORD)
    assert encoder(secret="a").decode(written) == PASSWORD
    assert PASSWORD not in written
    assert encoder(secret="a").encode(PASSWORD) != written
    parts = dict(part.split(":", 1) for part in written.split(","))
    assert parts["keyFactoryAlgorithm"] == "PBKDF2WithHmacSHA512"
    assert parts["iterations"] == "4096"
    assert parts["passwordLength"] == str(len(PASSWORD))


def test_the_length_is_that_of_java() -> None:
    """A broker of Kafka counts a character outside the first 65,536 as two, and refused what ours had stored."""
    password = "sword\N{FISH}"
    written = encoder(secret="a").encode(password)
    assert "passwordLength:7," in written
    assert encoder(secret="a").decode(written) == password
    assert encoder(secret="a").decode(written.replace("passwordLength:7", "passwordLength:6")) == password


def test_a_change_of_the_secret() -> None:
    written = encoder(secret="a").encode(PASSWORD)
    assert encoder(secret="b", old_secret="a").decode(written) == PASSWORD


def test_other_settings() -> None:
    given = {"keyfactory_algorithm": "PBKDF2WithHmacSHA1", "key_length": "256", "iterations": "1024"}
    assert encoder(secret="a").decode(encoder(secret="a", **given).encode(PASSWORD)) == PASSWORD


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-5],
        lambda text: text.replace("iterations:4096", "iterations:4097"),
        lambda text: text.replace("iterations:4096", "iterations:4000000000"),
        lambda text: text.replace("keyLength:128", "keyLength:-8"),
        lambda text: text.replace("keyLength:128", "keyLength:99999999999999999999"),
        lambda text: text.replace("passwordLength:13", "passwordLength:12"),
        lambda text: text.replace("AES/CBC/PKCS5Padding", "DES"),
        lambda text: text.replace("PBKDF2WithHmacSHA512", "MD5"),
        lambda text: "",
        lambda text: "swordfish",
        lambda text: "a:b,c",
    ],
)
def test_damage_is_one_error(change: object) -> None:
    written = encoder(secret="a").encode(PASSWORD)
    with pytest.raises(ValueError, match=r"^the stored password cannot be decrypted with password\.encoder\.secret$"):
        encoder(secret="a").decode(change(written))  # type: ignore[operator]


def test_without_a_secret_nothing_is_stored() -> None:
    with pytest.raises(ValueError, match=r"password\.encoder\.secret is not set"):
        encoder().encode(PASSWORD)
    with pytest.raises(ValueError, match="one of PBKDF2WithHmacSHA1"):
        encoder(secret="a", cipher_algorithm="DES").encode(PASSWORD)
