"""Contexts out of every form of certificates: each shakes hands with a server that asks for a certificate."""

import re
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from logyard.login import http, librdkafka, tls
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


def test_certificates_among_words_of_any_language(authority: Authority, server: Issued, tmp_path: Path) -> None:
    noted, folder = tmp_path / "noted.pem", tmp_path / "folder"
    noted.write_text(f"# Főtanúsítvány\n{authority.certificate.read_text()}# Ende\n")
    folder.mkdir()
    name = subprocess.check_output(["openssl", "x509", "-hash", "-noout", "-in", authority.certificate], text=True)
    (folder / f"{name.strip()}.0").write_text(noted.read_text())
    for security in (
        Security(ssl_cafile=str(noted)),
        Security(ssl_ca=noted.read_text()),
        Security(ssl_cafile=str(folder)),
    ):
        assert subject(authority, server, security) == ""
        assert http.of(security).trust.context().get_ca_certs()


def test_what_tasks_trust_has_no_key(authority: Authority, alice: Issued) -> None:
    """A file of authorities may be one with a key: what is trusted goes to the tasks, and the key does not."""
    assert "PRIVATE KEY" in alice.pem.read_text()
    trusted = http.of(Security(ssl_cafile=str(alice.pem))).trust.authorities
    assert trusted is not None
    assert "BEGIN CERTIFICATE" in trusted
    assert "KEY" not in trusted


def test_a_certificate_is_trusted_by_itself(authority: Authority, server: Issued) -> None:
    """As in Java: who has the server's certificate in the trust store needs no authority."""
    own = server.certificate.read_text().split("-----END CERTIFICATE-----")[0] + "-----END CERTIFICATE-----\n"
    for given in (Security(ssl_ca=own), Security(ssl_cafile=str(server.pkcs12), ssl_ca_password="changeit")):
        assert subject(authority, server, given) == ""
    assert http.of(Security(ssl_ca=own)).trust.context().verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN


def test_librdkafka_takes_each_form(authority: Authority, alice: Issued, tmp_path: Path) -> None:
    """It reads no PKCS12 as authorities, knows a store by its name, and wants the lines of PEM."""
    ca, store = str(authority.certificate), tmp_path / "store.jks"  # a common name of PKCS12 files
    store.write_bytes(alice.pkcs12.read_bytes())
    for security in (
        Security(ssl_cafile=ca, ssl_certfile=str(alice.pem), security_protocol="SSL"),
        Security(ssl_cafile=str(store), ssl_ca_password="changeit", security_protocol="SSL"),
        Security(ssl_cafile=ca, ssl_certfile=str(store), ssl_password="changeit", security_protocol="SSL"),
        Security(
            ssl_ca=one_line(authority.certificate),
            ssl_certificate=one_line(alice.certificate),
            ssl_key=one_line(alice.key),
            security_protocol="SSL",
        ),
    ):
        confluent_kafka.Producer({"bootstrap.servers": "127.0.0.1:1", **librdkafka.options(security)})


def test_a_token_that_http_cannot_carry_is_not_shown() -> None:
    """The library's error would have it."""
    odd = Security(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", oauth_token="hunter2\n")
    with pytest.raises(BadSettings, match="oauth_token: it has") as found:
        http.of(odd)
    assert "hunter2" not in str(found.value)


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


@pytest.mark.parametrize("form", ["text", "a key", "a file", "a folder"])
def test_authorities_without_a_certificate_are_not_the_systems(form: str, alice: Issued, tmp_path: Path) -> None:
    key = Path(alice.pem).read_text().partition("-----BEGIN CERTIFICATE")[0]
    (tmp_path / "key.pem").write_text(key)
    (tmp_path / "folder").mkdir()
    given: dict[str, dict[str, Any]] = {
        "text": {"ssl_ca": "nonsense"},
        "a key": {"ssl_ca": key},
        "a file": {"ssl_cafile": str(tmp_path / "key.pem")},
        "a folder": {"ssl_cafile": str(tmp_path / "folder")},
    }
    security = Security(security_protocol="SSL", **given[form])
    with pytest.raises(BadSettings, match=r"the CA certificates \(.+\) cannot be read"):
        tls.authorities(security)
    if "ssl_ca" in given[form]:
        with pytest.raises(BadSettings, match=r"the CA certificates \(.+\) cannot be read"):
            librdkafka.options(security)
