"""OAUTHBEARER: the client's first message, unsecured tokens, and a refusal in two steps."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logyard.broker.security.sasl.bearer_tokens import BearerToken, TokenRefused
from logyard.broker.security.sasl.mechanism import Identity, LoginRefused
from logyard.broker.security.sasl.oauthbearer import OAuthBearerServer, parse_first
from logyard.broker.security.sasl.unsecured_jws import UnsecuredRules, UnsecuredTokens

NOW_MS = 1_000_000


def jws(claims: Any, header: Any = None, signature: str = "") -> str:
    parts = [json.dumps(part).encode() for part in ({"alg": "none"} if header is None else header, claims)]
    return ".".join([*(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts), signature])


def validator(**options: str) -> UnsecuredTokens:
    return UnsecuredTokens(
        UnsecuredRules.from_options({f"unsecuredValidator{name}": value for name, value in options.items()}),
        lambda: NOW_MS,
    )


def first(token: str, head: str = "n,,", tail: str = "") -> bytes:
    return f"{head}\x01auth=Bearer {token}\x01{tail}\x01".encode()


GOOD = {"sub": "alice", "exp": 1001, "iat": 999, "scope": ["read", "write"]}


def test_a_token_logs_in() -> None:
    server = OAuthBearerServer(validator())
    assert server.step(first(jws(GOOD))) == b""
    assert server.identity == Identity("alice", 1_001_000)


def test_a_refusal_takes_two_steps() -> None:
    server = OAuthBearerServer(validator(RequiredScope="read admin"))
    assert json.loads(server.step(first(jws(GOOD)))) == {"status": "insufficient_scope", "scope": "[read, admin]"}
    with pytest.raises(LoginRefused) as caught:
        server.step(b"\x01")
    assert caught.value.told == '{"status":"insufficient_scope", "scope":"[read, admin]"}'
    assert server.identity is None


def test_another_token_may_follow_a_refusal() -> None:
    server = OAuthBearerServer(validator())
    assert server.step(first(jws({**GOOD, "exp": 1}))) == b'{"status":"invalid_token"}'
    assert server.step(first(jws(GOOD))) == b""
    assert server.identity == Identity("alice", 1_001_000)


def test_an_authorization_id_is_the_principal() -> None:
    assert OAuthBearerServer(validator()).step(first(jws(GOOD), "n,a=alice,")) == b""
    with pytest.raises(LoginRefused, match="authorization id"):
        OAuthBearerServer(validator()).step(first(jws(GOOD), "n,a=bob,"))


@pytest.mark.parametrize("message", [
    b"", b"\x01", b"n,,", b"n,,\x01\x01", b"n,,\x01auth=Basic abc\x01\x01", b"n,,\x01auth=Bearer \x01\x01",
    b"n,,\x01auth=Bearer a b\x01\x01", b"y,,\x01auth=Bearer a\x01\x01", b"n,,\x01auth=Bearer a\x01",
    b"n,,auth=Bearer a",
    b"n,,\x01Auth=Bearer a\x01\x01", b"n,,\x01auth=Bearer \xff\x01\x01", b"n,a=,\x01auth=Bearer a\x01\x01",
])  # fmt: skip
def test_first_messages_that_are_refused(message: bytes) -> None:
    with pytest.raises(LoginRefused) as caught:
        parse_first(message)
    assert caught.value.told is None


def test_extensions_are_left_out() -> None:
    assert parse_first(first("a.b-_c", "n,a=x=2Cy,", "host=h\x01port=1\x01")) == ("x,y", "a.b-_c")
    assert parse_first(b"n,,\x01auth=bearer   t\x01\x01") == ("", "t")


@pytest.mark.parametrize(("token", "reason"), [
    (jws({**GOOD, "exp": 1000}), "expired"),
    (jws({**GOOD, "exp": "1001"}), "number as exp"),
    (jws({**GOOD, "exp": True}), "number as exp"),
    (jws({**GOOD, "exp": 1e300}), "number as exp"),
    (jws({"sub": "a"}), "number as exp"),
    (jws({**GOOD, "iat": 1001}), "future"),
    (jws({**GOOD, "sub": ""}), "no claim sub"),
    (jws({**GOOD, "sub": 1}), "no claim sub"),
    (jws({"exp": 1001}), "no claim sub"),
    (jws(GOOD, {"alg": "RS256"}), "signed"),
    (jws(GOOD, {}), "signed"),
    (jws(GOOD, signature="abc"), "signed"),
    (jws([]), "no JSON object"),
    ("a.b", "three parts"),
    ("!.!.", "base64url"),
    (base64.urlsafe_b64encode(b"[" * 100_000).decode() + ".e30.", "base64url"),
])  # fmt: skip
def test_tokens_that_are_refused(token: str, reason: str) -> None:
    with pytest.raises(TokenRefused, match=reason):
        validator().validate(token)


def test_the_options_of_the_module() -> None:
    tokens = validator(PrincipalClaimName="who", ScopeClaimName="may", RequiredScope="a", AllowableClockSkewMs="2000")
    assert tokens.validate(jws({"who": "w", "may": "b a", "exp": 999})) == BearerToken("w", 999_000)
    with pytest.raises(TokenRefused, match="expired"):
        tokens.validate(jws({"who": "w", "may": "a", "exp": 998}))
    with pytest.raises(ValueError, match="AllowableClockSkewMs"):
        validator(AllowableClockSkewMs="soon")


@given(st.text(max_size=60))
def test_any_text_is_refused(token: str) -> None:
    with pytest.raises(TokenRefused):
        validator().validate(token)


@given(st.binary(max_size=60))
def test_any_bytes_are_refused(message: bytes) -> None:
    with pytest.raises(LoginRefused):
        OAuthBearerServer(validator()).step(message)
