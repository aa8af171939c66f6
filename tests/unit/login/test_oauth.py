"""Tokens of a token endpoint: asked for once while they live, and a refusal names everything but the secret."""

import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from logyard.login.oauth import NoToken, TokenSource
from logyard.login.security import BadSettings, Security
from tests.support.authority import Authority
from tests.support.token_endpoint import TokenEndpoint


def security(url: str, secret: str = "hunter2") -> Security:
    return Security(oauth_token_url=url, oauth_client_id="alice", oauth_client_secret=secret, oauth_scope="kafka")


def test_a_token_is_used_while_it_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with TokenEndpoint(tmp_path, {"alice": "hunter2"}, life_s=100) as endpoint:
        source = TokenSource(security(endpoint.url))
        first = source.token()
        assert source.token() == first
        assert endpoint.asked == 1
        later = time.monotonic() + 81
        monkeypatch.setattr(time, "monotonic", lambda: later)
        source.token()
        assert endpoint.asked == 2


def test_a_refusal_names_the_client_and_not_its_secret(tmp_path: Path) -> None:
    refused = pytest.raises(NoToken, match="refuses client 'alice': 401 invalid_client")
    with TokenEndpoint(tmp_path, {"alice": "other"}) as endpoint, refused as found:
        TokenSource(security(endpoint.url)).token()
    assert "hunter2" not in str(found.value)
    with pytest.raises(NoToken, match="gives no token"):
        TokenSource(security(endpoint.url)).token()
    for url in ("file:///etc/passwd", "http://[token.example"):
        with pytest.raises(BadSettings, match="an http or https URL"):
            TokenSource(security(url)).token()


def test_an_endpoint_that_fails_costs_nothing_while_the_token_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TokenEndpoint(tmp_path, {"alice": "hunter2"}, life_s=100) as endpoint:
        source, began = TokenSource(security(endpoint.url)), time.monotonic()
        first = source.token()
        endpoint.clients["alice"] = "other"
        for after_s in (85, 86, 99):
            monkeypatch.setattr(time, "monotonic", lambda now=began + after_s: now)
            assert source.token() == first
        assert endpoint.asked == 3  # not at 86 s, a second after the failure
        monkeypatch.setattr(time, "monotonic", lambda: began + 140)  # the token came some time after `began`
        with pytest.raises(NoToken, match="refuses"):
            source.token()
        endpoint.clients["alice"] = "hunter2"
        assert source.token()


class SlowEndpoint(TokenEndpoint):
    """Its second answer waits until it is `released`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, {"alice": "hunter2"}, life_s=100)
        self.begun, self.released = threading.Event(), threading.Event()

    def answer(self, authorization: str, form: Mapping[str, list[str]]) -> tuple[int, dict[str, object]]:
        if self.asked == 1:
            self.begun.set()
            assert self.released.wait(10)
        return super().answer(authorization, form)


def test_who_comes_while_another_asks_goes_on_with_the_old_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = SlowEndpoint(tmp_path)
    with endpoint:
        source, began, found = TokenSource(security(endpoint.url)), time.monotonic(), []
        first = source.token()
        monkeypatch.setattr(time, "monotonic", lambda: began + 85)
        slow = threading.Thread(target=lambda: found.append(source.token()))
        slow.start()
        assert endpoint.begun.wait(10)
        assert source.token() == first
        endpoint.released.set()
        slow.join(10)
        assert (len(found), endpoint.asked) == (1, 2)


@pytest.mark.parametrize(
    "answer",
    [
        b"no answer of HTTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b"[" * 200_000,
        b"HTTP/1.1 500 Oh\r\nContent-Length: 200000\r\n\r\n" + b"[" * 200_000,
    ],
)
def test_odd_answers_are_no_token(answer: bytes) -> None:
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listening, listening.accept()[0] as link:
            link.recv(65536)
            link.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    with pytest.raises(NoToken):
        TokenSource(security(f"http://127.0.0.1:{listening.getsockname()[1]}")).token()


def test_authorities_that_cannot_be_read_are_named() -> None:
    with pytest.raises(BadSettings, match="oauth_cafile /nowhere: No such file"):
        TokenSource(replace(security("https://127.0.0.1:1"), oauth_cafile="/nowhere")).token()


def test_authorities_that_cannot_be_read_cost_nothing_while_the_token_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who replaces the file removes it first, perhaps."""
    authority = Authority(tmp_path / "authority")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("endpoint", ("127.0.0.1",)).pem)
    with TokenEndpoint(tmp_path / "tokens", {"alice": "hunter2"}, life_s=100, context=context) as endpoint:
        source = TokenSource(replace(security(endpoint.url), oauth_cafile=str(authority.certificate)))
        first, began = source.token(), time.monotonic()
        away = authority.certificate.rename(tmp_path / "away.pem")
        monkeypatch.setattr(time, "monotonic", lambda: began + 85)
        assert source.token() == first
        monkeypatch.setattr(time, "monotonic", lambda: began + 101)
        with pytest.raises(BadSettings, match="No such file"):
            source.token()
        away.rename(authority.certificate)
        assert source.token()
    assert endpoint.asked == 2


def by_hand(key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey, is_authority: bool) -> bytes:
    """A certificate as the command openssl makes it without a file of extensions: no key usage, no key ids."""
    of, by = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        for name in ("authority" if is_authority else "endpoint", "authority")
    )
    made = x509.CertificateBuilder(by, of, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(datetime.now(UTC) - timedelta(days=1))
    made = made.not_valid_after(datetime.now(UTC) + timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
    made = made.add_extension(x509.BasicConstraints(is_authority, None), critical=True)
    return made.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize("kind", ["the endpoint's own", "made by hand"])
def test_an_endpoints_certificate_is_trusted_as_in_java(kind: str, tmp_path: Path) -> None:
    pem, trusted = tmp_path / "endpoint.pem", tmp_path / "trusted.pem"
    if kind == "made by hand":
        key, signer = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        trusted.write_bytes(by_hand(signer, signer, True))
        plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        pem.write_bytes(key.private_bytes(serialization.Encoding.PEM, *plain) + by_hand(key, signer, False))
    else:
        issued = Authority(tmp_path / "authority").issue("endpoint", ("127.0.0.1",))
        pem.write_bytes(issued.pem.read_bytes())
        first, end, _ = issued.certificate.read_text().partition("-----END CERTIFICATE-----")
        trusted.write_text(f"{first}{end}\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with TokenEndpoint(tmp_path / "tokens", {"alice": "hunter2"}, context=context) as endpoint:
        assert endpoint.url.startswith("https")
        assert TokenSource(replace(security(endpoint.url), oauth_cafile=str(trusted))).token()


def test_a_given_token_is_taken_as_it_is() -> None:
    assert TokenSource(Security(oauth_token="t")).token() == "t"
