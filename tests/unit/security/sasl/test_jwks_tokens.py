"""Signed tokens: keys of all kinds, what a token has to say, and keys that are read again."""

import asyncio
import base64
import json
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from logyard.broker.security.sasl.bearer_tokens import TokenRefused
from logyard.broker.security.sasl.jwks_tokens import JwksTokens, TokenRules, parse_keys
from logyard.broker.security.signing_keys import JwksSettings, SigningKeys, read_document

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
JWKS = {
    "keys": [
        {**json.loads(RSAAlgorithm.to_jwk(RSA.public_key())), "kid": "rsa", "use": "sig"},
        {**json.loads(ECAlgorithm.to_jwk(EC.public_key())), "kid": "ec"},
        {**json.loads(OKPAlgorithm.to_jwk(ED.public_key())), "kid": "ed"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"},
        {"kty": "RSA", "kid": "broken"},
        {**json.loads(RSAAlgorithm.to_jwk(RSA.public_key())), "kid": "enc", "use": "enc"},
    ]
}
DOCUMENT = json.dumps(JWKS).encode()
NOW = time.time()
# Longer than a run of all tests takes.
LIFE_S = 36_000
GOOD = {"sub": "alice", "iat": NOW, "exp": NOW + LIFE_S}


def token(claims: dict[str, Any] | None = None, key: Any = RSA, algorithm: str = "RS256", **header: Any) -> str:
    return jwt.encode(GOOD if claims is None else claims, key, algorithm, headers={"kid": "rsa", **header})


def tokens(unknown: list[str] | None = None, **rules: Any) -> JwksTokens:
    seen = [] if unknown is None else unknown
    keys = parse_keys(DOCUMENT)
    return JwksTokens(TokenRules(**rules), lambda: keys, seen.append)


@pytest.mark.parametrize(("key", "algorithm", "kid"), [
    (RSA, "RS256", "rsa"), (RSA, "RS512", "rsa"), (RSA, "PS256", "rsa"), (EC, "ES256", "ec"), (ED, "EdDSA", "ed"),
])  # fmt: skip
def test_every_kind_of_key(key: Any, algorithm: str, kid: str) -> None:
    found = tokens().validate(token(key=key, algorithm=algorithm, kid=kid))
    assert found.principal == "alice"
    assert abs(found.expires_ms / 1000 - (NOW + LIFE_S)) < 1
    # Without an id every key that fits is tried.
    bare = jwt.encode(GOOD, key, algorithm)
    assert tokens().validate(bare).principal == "alice"


@pytest.mark.parametrize(("made", "reason"), [
    (token({**GOOD, "exp": NOW - 60}), "ExpiredSignature"),
    (token({**GOOD, "nbf": NOW + LIFE_S - 1}), "ImmatureSignature"),
    (token({**GOOD, "iat": NOW + LIFE_S + 1}), "expires before it is issued"),
    (token({**GOOD, "iat": str(int(NOW))}), "no number as iat"),
    (token({"sub": "a", "exp": NOW + 60}), "MissingRequiredClaim"),
    (token({"sub": "a", "iat": NOW}), "MissingRequiredClaim"),
    (token({**GOOD, "exp": str(int(NOW + LIFE_S))}), "no number as exp"),
    (token({**GOOD, "exp": 1e307}), "no number as exp"),
    (token({**GOOD, "sub": " "}), "no claim sub"),
    (token({"iat": NOW, "exp": NOW + LIFE_S}), "no claim sub"),
    (token({**GOOD, "aud": "kafka"}), "InvalidAudience"),
    (token(key=rsa.generate_private_key(public_exponent=65537, key_size=2048)), "signature is wrong"),
    (token(key=EC, algorithm="ES256"), "no key"),
    (token(kid="enc"), "no key"),
    (token(key="s" * 32, algorithm="HS256", kid="shared"), "no key"),
    (token(key="s" * 32, algorithm="HS256"), "no key"),
    (jwt.encode(GOOD, "", "none"), "no key"),
    ("", "no JWS"), ("a.b.c", "no JWS"), ("..", "no JWS"), (token() + "x", "signature|no JWS"),
    (token()[:-8], "signature|no JWS"),
])  # fmt: skip
def test_tokens_that_are_refused(made: str, reason: str) -> None:
    with pytest.raises(TokenRefused, match=reason) as caught:
        tokens().validate(made)
    assert caught.value.status == "invalid_token"


def test_rules() -> None:
    aimed = token({**GOOD, "aud": ["kafka", "other"], "iss": "me", "who": "w"})
    assert tokens(audience=("kafka",), issuer="me", subject_claim="who").validate(aimed).principal == "w"
    with pytest.raises(TokenRefused, match="Audience"):
        tokens(audience=("elsewhere",)).validate(aimed)
    with pytest.raises(TokenRefused, match="Issuer"):
        tokens(audience=("kafka",), issuer="you").validate(aimed)
    with pytest.raises(TokenRefused, match=r"MissingRequiredClaim|Audience"):
        tokens(audience=("kafka",)).validate(token())
    late = token({**GOOD, "iat": NOW - 120, "exp": NOW - 60})
    assert tokens(clock_skew_s=3600).validate(late).principal == "alice"


def test_the_clock_of_who_made_a_token_may_be_ahead() -> None:
    """As in Kafka, whose library asks for `iat`, and compares it with `exp` alone."""
    assert tokens().validate(token({**GOOD, "iat": NOW + 120})).principal == "alice"


def test_keys_of_another_curve_or_algorithm_are_passed_over() -> None:
    """A token without a key id is tried with each key that may have signed it, whatever comes before that one."""
    wide = ec.generate_private_key(ec.SECP384R1())
    curves = [json.loads(ECAlgorithm.to_jwk(key.public_key())) for key in (wide, EC)]
    only = {**json.loads(RSAAlgorithm.to_jwk(RSA.public_key())), "alg": "RS512"}
    keys = parse_keys(json.dumps({"keys": [*curves, only]}).encode())
    found = JwksTokens(TokenRules(), lambda: keys, lambda _: None)
    assert found.validate(jwt.encode(GOOD, EC, "ES256")).principal == "alice"
    assert found.validate(jwt.encode(GOOD, RSA, "RS512")).principal == "alice"
    with pytest.raises(TokenRefused, match="no key"):
        found.validate(jwt.encode(GOOD, RSA, "RS256"))


def test_an_unknown_key_is_asked_for() -> None:
    asked: list[str] = []
    for kid in ("new", "x" * 5000):
        with pytest.raises(TokenRefused, match="no key"):
            tokens(asked).validate(token(kid=kid))
    assert asked == ["new"]


@pytest.mark.parametrize("alg", ["[]", "{}", "1", "null", '"none"', '"RS256 "'])
def test_algorithms_that_are_none(alg: str) -> None:
    head = base64.urlsafe_b64encode(f'{{"alg":{alg}}}'.encode()).decode().rstrip("=")
    with pytest.raises(TokenRefused, match=r"no key|no JWS"):
        tokens().validate(f"{head}.{token().partition('.')[2]}")


@pytest.mark.parametrize(
    "document",
    [b"", b"[]", b"{}", b'{"keys": 1}', b'{"keys": [{"kty": "oct"}, {"kty": {}}, 1]}', b"[" * 100_000],
)
def test_documents_without_keys(document: bytes) -> None:
    with pytest.raises(ValueError, match="key"):
        parse_keys(document)


async def in_loop(work: Any) -> Any:
    return work()


async def test_keys_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    settings = JwksSettings(path.as_uri(), 3600, 0.01, 0.02)
    keys = SigningKeys(settings, in_loop)
    try:
        await asyncio.sleep(0.1)
        assert keys.keys() == ()
        path.write_bytes(DOCUMENT)
        async with asyncio.timeout(5):
            while not keys.keys():
                await asyncio.sleep(0.01)
        # An unknown id has them read early; what cannot be read leaves those that are there.
        before = keys.keys()
        path.write_text("broken")
        keys.unknown("one")
        await asyncio.sleep(0.1)
        assert keys.keys() == before
        path.write_text(json.dumps({"keys": JWKS["keys"][:1]}))
        async with asyncio.timeout(5):
            while len(keys.keys()) > 1:
                await asyncio.sleep(0.01)
    finally:
        keys.close()


def served(answer: bytes, piece: int) -> str:
    """Serve one answer on loopback, so many bytes each 20 ms; returns its URL."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listening, suppress(OSError):
            peer, _ = listening.accept()
            with peer:
                peer.recv(65536)
                for at in range(0, len(answer), piece):
                    peer.sendall(answer[at : at + piece])
                    time.sleep(0.02)

    threading.Thread(target=serve, daemon=True).start()
    return f"http://127.0.0.1:{listening.getsockname()[1]}/"


def test_answers_of_an_endpoint_that_lies_or_drips_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
    assert read_document(served(head % len(DOCUMENT) + DOCUMENT, 1 << 20)) == DOCUMENT
    with pytest.raises(OSError, match="no answer of HTTP"):
        read_document(served(b"nonsense\r\n\r\n", 99))
    monkeypatch.setattr("logyard.broker.security.signing_keys.DOCUMENT_S_MAX", 0.3)
    with pytest.raises(TimeoutError):
        read_document(served(head % 5000 + b" " * 5000, 10))
    monkeypatch.setattr("logyard.broker.security.signing_keys.DOCUMENT_BYTES_MAX", 100)
    with pytest.raises(ValueError, match="more than"):
        read_document(served(head % 101 + b" " * 101, 200))


async def test_hostile_ids_do_not_have_them_read_all_the_time() -> None:
    reads: list[str] = []

    def read(url: str) -> bytes:
        reads.append(url)
        return DOCUMENT

    keys = SigningKeys(JwksSettings("https://h/jwks", 3600, 1, 1), in_loop, read)
    try:
        await asyncio.sleep(0.05)
        for number in range(1000):
            keys.unknown(str(number))
            keys.unknown("same")
        await asyncio.sleep(0.05)
        assert len(reads) == 2
    finally:
        keys.close()


def test_only_three_schemes_are_read() -> None:
    for url in ("ftp://h/x", "data:,x", "/etc/passwd", ""):
        with pytest.raises(ValueError, match="https, http, file"):
            JwksSettings(url, 1, 1, 1)
    with pytest.raises(OSError, match="No such file"):
        read_document("file:///no/such/file")
