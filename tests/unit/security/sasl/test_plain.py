"""PLAIN: three parts, and a refusal that does not tell whether the user exists."""

import pytest

from logyard.broker.security.sasl.mechanism import Identity, LoginRefused
from logyard.broker.security.sasl.plain import PlainClient, PlainServer

USERS = {"alice": "secret", "ümlaut": "pässword=,"}


def refusal(token: bytes) -> LoginRefused:
    server = PlainServer(USERS.get)
    with pytest.raises(LoginRefused) as caught:
        server.step(token)
    assert server.identity is None
    assert "secret" not in f"{caught.value} {caught.value.told}"
    return caught.value


@pytest.mark.parametrize(("user", "password"), USERS.items())
def test_both_sides_agree(user: str, password: str) -> None:
    server, client = PlainServer(USERS.get), PlainClient(user, password)
    assert client.step(server.step(client.first())) is None
    assert client.is_done
    assert server.identity == Identity(user)
    assert server.claimed == user


def test_an_authorization_id_is_empty_or_the_user() -> None:
    server = PlainServer(USERS.get)
    assert server.step(b"alice\0alice\0secret") == b""
    assert server.identity == Identity("alice")
    told = refusal(b"bob\0alice\0secret").told
    assert told == "Authentication failed: Client requested an authorization id that is different from username"


@pytest.mark.parametrize(("token", "told"), [
    (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
    (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
    (b"\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
    (b"\0alice\0secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    (b"\0" * 1000, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    (b"\0\0secret", "Authentication failed: username not specified"),
    (b"\0alice\0", "Authentication failed: password not specified"),
    (b"\0alice\0Secret", "Authentication failed: Invalid username or password"),
    (b"\0alice\0secret ", "Authentication failed: Invalid username or password"),
    (b"\0Alice\0secret", "Authentication failed: Invalid username or password"),
    (b"\0alice\0\xff\xfe", "Authentication failed: Invalid username or password"),
])  # fmt: skip
def test_refusals_have_the_texts_of_kafka(token: bytes, told: str) -> None:
    assert refusal(token).told == told


def test_the_user_is_known_before_the_password_is_looked_at() -> None:
    assert PlainServer(USERS.get).proves(b"\0alice\0guess") == "alice"
    assert PlainServer(USERS.get).proves(b"alice") is None
