"""Contexts out of every form of certificates: each shakes hands with a server that asks for a certificate."""

import re
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from logyard.login import tls
from logyard.login.security import BadSettings, Security
from tests.support.authority import Authority, Issued


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Issued:
    return authority.issue("server", ("localhost",))


@pytest.fixture(scope="module")
def alice(authority: Authority) -> Issued:
    return authority.issue("alice")


@pytest.fixture(scope="module")
def sealed(authority: Authority) -> Issued:
    return authority.issue("sealed", password="hunter2")


def subject(authority: Authority, server: Issued, security: Security, name: str = "localhost") -> str:
    """The common name that the server sees; raises what the client meets."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate))
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_cert_chain(server.pem)
    ours, theirs = socket.socketpair()
    seen: list[str] = []

    def serve() -> None:
        try:
            with context.wrap_socket(theirs, server_side=True) as link:
                shown: Any = link.getpeercert() or {}
                seen.append(str(dict(pair for rdn in shown.get("subject", ()) for pair in rdn).get("commonName", "")))
                link.sendall(b"x")
        except (ssl.SSLError, OSError):
            theirs.close()

    running = threading.Thread(target=serve)
    running.start()
    try:
        with tls.context(security).wrap_socket(ours, server_hostname=name) as link:
            assert link.recv(1) == b"x"
    finally:
        ours.close()
        running.join(10)
    return seen[0]


def one_line(path: Path) -> str:
    return path.read_text().replace("\n", " ")


def test_each_form_of_certificates(authority: Authority, server: Issued, alice: Issued, sealed: Issued) -> None:
    ca = str(authority.certificate)
    forms = {
        "": Security(ssl_cafile=ca),
        "alice": Security(ssl_cafile=ca, ssl_certfile=str(alice.certificate), ssl_keyfile=str(alice.key)),
        "sealed": Security(
            ssl_cafile=ca, ssl_certfile=str(sealed.certificate), ssl_keyfile=str(sealed.key), ssl_password="hunter2"
        ),
    }
    for expected, security in forms.items():
        assert subject(authority, server, security) == expected
    one_file = str(alice.pem)
    for security in (
        Security(ssl_cafile=ca, ssl_certfile=one_file),
        Security(ssl_cafile=ca, ssl_certfile=one_file, ssl_keyfile=one_file),
        Security(ssl_cafile=str(alice.pkcs12), ssl_ca_password="changeit", ssl_certfile=one_file),
        Security(ssl_cafile=ca, ssl_certfile=str(alice.pkcs12), ssl_password="changeit"),
        Security(
            ssl_ca=authority.certificate.read_text(),
            ssl_certificate=alice.certificate.read_text(),
            ssl_key=alice.key.read_text(),
        ),
        Security(
            ssl_ca=one_line(authority.certificate),
            ssl_certificate=one_line(alice.certificate),
            ssl_key=one_line(alice.key),
        ),
    ):
        assert subject(authority, server, security) == "alice"


def test_names_and_trust_are_checked(authority: Authority, server: Issued, tmp_path: Path) -> None:
    ca = str(authority.certificate)
    other = str(Authority(tmp_path).certificate)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        subject(authority, server, Security(ssl_cafile=ca), "elsewhere.example")
    with pytest.raises(ssl.SSLCertVerificationError, match=r"unable to get|self-signed|signature"):
        subject(authority, server, Security(ssl_cafile=other))
    assert subject(authority, server, Security(ssl_cafile=ca, ssl_check_hostname=False), "elsewhere.example") == ""
    assert subject(authority, server, Security(ssl_cafile=other, ssl_check_certificate=False)) == ""


def test_what_cannot_be_read_is_named(authority: Authority, alice: Issued, sealed: Issued, tmp_path: Path) -> None:
    ca = str(authority.certificate)
    jks, text = tmp_path / "store.jks", tmp_path / "text"
    jks.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    text.write_text("no certificate")
    for security, said in (
        (Security(ssl_cafile="/nowhere.pem"), "ssl_cafile /nowhere.pem: No such file"),
        (Security(ssl_cafile=str(jks)), "keytool -importkeystore"),
        (Security(ssl_cafile=str(text)), "neither PEM nor a PKCS12"),
        (Security(ssl_cafile=str(alice.pkcs12), ssl_ca_password="wrong-1"), "password is wrong"),
        (Security(ssl_ca="-----BEGIN CERTIFICATE----- nonsense -----END CERTIFICATE-----"), "given as text"),
        (Security(ssl_cafile=ca, ssl_certfile=ca), f"certificate and key ({ca})"),
        (Security(ssl_cafile=ca, ssl_certfile=str(sealed.pem)), "is ssl_password missing?"),
        (Security(ssl_cafile=ca, ssl_certfile=str(sealed.pem), ssl_password="wrong-1"), str(sealed.pem)),
        (Security(ssl_cafile=ca, ssl_certificate=alice.certificate.read_text()), "without ssl_key"),
    ):
        with pytest.raises(BadSettings, match=re.escape(said)) as found:
            tls.context(security)
        assert "wrong-1" not in str(found.value)


def test_no_key_stays_on_the_disk(
    authority: Authority, alice: Issued, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tls.context(
        Security(ssl_cafile=str(authority.certificate), ssl_certfile=str(alice.pkcs12), ssl_password="changeit")
    )
    tls.context(
        Security(
            ssl_ca=authority.certificate.read_text(),
            ssl_certificate=alice.certificate.read_text(),
            ssl_key=alice.key.read_text(),
        )
    )
    assert list(tmp_path.iterdir()) == []
