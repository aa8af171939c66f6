"""Stores of every kind give key, chain and trust; what is wrong is one line that names the key and tells no secret."""

import os
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from structlog.testing import capture_logs

from logyard.broker.config.broker import BrokerConfig
from logyard.broker.config.listener_settings import ListenerSettings
from logyard.broker.tls.context import client_context, read_stores, server_context, unasked_suites
from logyard.broker.tls.handshakes import Handshakes
from logyard.broker.tls.listeners import TlsListeners
from logyard.broker.tls.problems import TlsProblem
from tests.support.certificates import PASSWORD, Authority

ROOT = Authority("root")
MIDDLE = Authority("middle", above=ROOT)
OWN = MIDDLE.issue("broker")
HEAD = {
    "zookeeper.connect": "z:1",
    "listeners": "SSL://127.0.0.1:1",
    "security.inter.broker.protocol": "SSL",
}
INLINE = {
    "ssl.keystore.type": "PEM",
    "ssl.keystore.key": OWN.key_pem,
    "ssl.keystore.certificate.chain": OWN.chain_pem,
}


def listener(given: dict[str, str]) -> ListenerSettings:
    return BrokerConfig.parse("", HEAD | given).listener("SSL")


def files(directory: Path) -> dict[str, str]:
    """Every store of these tests, by its name."""
    OWN.write_pem(directory / "own.pem")
    OWN.write_pkcs12(directory / "own.p12")
    ROOT.write_pem(directory / "root.pem")
    ROOT.write_pkcs12(directory / "root.p12")
    (directory / "locked.pem").write_text(OWN.encrypted_key_pem(PASSWORD) + OWN.chain_pem)
    (directory / "java.jks").write_bytes(b"\xfe\xed\xfe\xed" + bytes(30))
    (directory / "torn.p12").write_bytes((directory / "own.p12").read_bytes()[:200])
    (directory / "text.pem").write_text("hello")
    return {path.name: str(path) for path in directory.iterdir()}


@pytest.mark.parametrize(
    "given",
    [
        INLINE,
        INLINE | {"ssl.keystore.key": OWN.encrypted_key_pem(PASSWORD), "ssl.key.password": PASSWORD},
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": "own.pem"},
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": "locked.pem", "ssl.key.password": PASSWORD},
        {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "own.p12", "ssl.keystore.password": PASSWORD},
        {"ssl.keystore.location": "own.p12", "ssl.keystore.password": PASSWORD},
        {"listener.name.ssl.ssl.keystore.location": "own.p12", "listener.name.ssl.ssl.keystore.password": PASSWORD},
    ],
)
@pytest.mark.parametrize(
    "trust",
    [
        {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": ROOT.pem},
        {"ssl.truststore.type": "PEM", "ssl.truststore.location": "root.pem"},
        {"ssl.truststore.type": "PKCS12", "ssl.truststore.location": "root.p12", "ssl.truststore.password": PASSWORD},
    ],
)
def test_stores_that_work(tmp_path: Path, given: dict[str, str], trust: dict[str, str]) -> None:
    there = files(tmp_path)
    settings = listener({key: there.get(value, value) for key, value in (given | trust).items()})
    keys, trusted = read_stores(settings)
    assert keys is not None
    assert trusted is not None
    assert keys.chain == tuple(c.public_bytes(serialization.Encoding.DER) for c in OWN.chain)
    assert "PRIVATE" not in repr(keys)
    handshake(server_context(settings, keys, trusted), client_context(settings, keys, trusted))


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "127.0.0.1") -> ssl.SSLObject:
    """Shake hands in memory; return the client's side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    at_server = server.wrap_bio(to_server, to_client, server_side=True)
    at_client = client.wrap_bio(to_client, to_server, server_hostname=host)
    waiting = [at_client, at_server]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
        if not waiting:
            return at_client
    raise AssertionError("the handshake does not end")


KEYS = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "own.pem"}
JKS = {"ssl.keystore.location": "own.p12", "ssl.keystore.password": PASSWORD}


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, "ssl.keystore.location: listener SSL speaks SSL and needs a key store"),
        (KEYS | {"ssl.keystore.password": PASSWORD}, "ssl.keystore.password: a PEM store has none: set ssl.key.passw"),
        (KEYS | {"ssl.keystore.location": "locked.pem"}, "the password is wrong or missing (ssl.keystore.password"),
        (KEYS | {"ssl.keystore.location": "none"}, "ssl.keystore.location: none cannot be read (No such file"),
        (KEYS | {"ssl.keystore.location": "root.pem"}, "has 0 private keys, and needs one"),
        (KEYS | {"ssl.keystore.location": "text.pem"}, "has 0 private keys, and needs one"),
        (JKS | {"ssl.keystore.password": "wrong"}, "the password is wrong or missing (ssl.keystore.password"),
        ({"ssl.keystore.location": "own.p12"}, "ssl.keystore.password: is needed to read"),
        ({"ssl.keystore.password": PASSWORD}, "ssl.keystore.password: is set without ssl.keystore.location"),
        (JKS | {"ssl.keystore.location": "torn.p12"}, "it is damaged, or of another type"),
        (JKS | {"ssl.keystore.location": "root.p12"}, "it has no private key with a certificate"),
        (JKS | {"ssl.keystore.location": "java.jks"}, "keytool -importkeystore -srckeystore "),
        ({"ssl.keystore.type": "BKS"}, "ssl.keystore.type: is BKS; one of JKS, PKCS12, PEM is expected"),
        (INLINE | {"ssl.keystore.type": "JKS"}, "ssl.keystore.key: is for type PEM only: set ssl.keystore.type=PEM"),
        (INLINE | {"ssl.keystore.location": "x"}, "ssl.keystore.key: leave it or ssl.keystore.location out"),
        (INLINE | {"ssl.keystore.password": "x"}, "ssl.keystore.password: a PEM store has none"),
        (
            {k: v for k, v in INLINE.items() if "chain" not in k},
            "ssl.keystore.certificate.chain: is missing beside ssl",
        ),
        ({k: v for k, v in INLINE.items() if ".key" not in k[8:]}, "ssl.keystore.key: is missing beside ssl.keystore"),
        (INLINE | {"ssl.keystore.key": Authority().issue("x").key_pem}, "the key or certificate cannot be used"),
        (INLINE | {"ssl.truststore.password": "x"}, "ssl.truststore.password: is set without ssl.truststore.location"),
        (INLINE | {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "x"}, "it has no certificate in PEM"),
        (
            INLINE | {"ssl.truststore.location": "java.jks"},
            "is a trust store in Java's own format; convert it: keytool",
        ),
        (
            INLINE | {"ssl.truststore.location": "root.p12", "ssl.truststore.password": "wrong"},
            "the password is wrong or missing (ssl.truststore.password",
        ),
        (INLINE | {"ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols: TLSv1.2 or TLSv1.3 is needed"),
        (INLINE | {"ssl.enabled.protocols": "TLSv9"}, "ssl.enabled.protocols: 'TLSv9' is unknown"),
        (
            INLINE | {"ssl.cipher.suites": "TLS_NO_WITH_SUCH_THING"},
            "ssl.cipher.suites: 'TLS_NO_WITH_SUCH_THING' is not",
        ),
        (INLINE | {"ssl.engine.factory.class": "x.Y"}, "ssl.engine.factory.class: Java classes cannot be used"),
    ],
)
def test_faults_are_one_line(tmp_path: Path, given: dict[str, str], line: str) -> None:
    there = files(tmp_path)
    settings = listener({key: there.get(value, value) for key, value in given.items()})
    with pytest.raises(TlsProblem) as caught:
        server_context(settings, *read_stores(settings))
    text = str(caught.value)
    assert line in text
    assert "\n" not in text
    assert PASSWORD not in text


def test_endpoint_identification() -> None:
    """https checks the name, nothing does not; anything else is refused."""
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": ROOT.pem}
    checked, unchecked, odd = (
        listener(INLINE | trust | more)
        for more in (
            {},
            {"ssl.endpoint.identification.algorithm": ""},
            {"ssl.endpoint.identification.algorithm": "ldaps"},
        )
    )
    stores = read_stores(checked)
    server = server_context(checked, *stores)
    handshake(server, client_context(checked, *stores))
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(server, client_context(checked, *stores), "other.example")
    handshake(server, client_context(unchecked, *stores), "other.example")
    with pytest.raises(TlsProblem, match="https, or nothing, is expected, not 'ldaps'"):
        client_context(odd, *stores)


@pytest.mark.parametrize(
    ("suites", "protocols", "expected"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "", ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2")),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "", ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLSv1.2")),
        ("ECDHE-ECDSA-AES128-GCM-SHA256", "", ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2")),
        ("TLS_AES_256_GCM_SHA384", "", ("TLS_AES_256_GCM_SHA384", "TLSv1.3")),
        ("", "TLSv1.2", (None, "TLSv1.2")),
        ("", "SSLv3,TLSv1.1,TLSv1.3", (None, "TLSv1.3")),
        ("TLS_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "", (None, "TLSv1.3")),
    ],
)
def test_suites_and_versions(suites: str, protocols: str, expected: tuple[str | None, str]) -> None:
    given = {k: v for k, v in (("ssl.cipher.suites", suites), ("ssl.enabled.protocols", protocols)) if v}
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": ROOT.pem}
    settings = listener(INLINE | trust | given)
    stores = read_stores(settings)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=ROOT.pem)
    done = handshake(server_context(settings, *stores), client)
    suite = done.cipher()
    assert suite is not None
    assert expected[0] in (None, suite[0])
    assert done.version() == expected[1]


ONE_SUITE = """\
openssl_conf = init
[init]
ssl_conf = tls
[tls]
system_default = defaults
[defaults]
Ciphersuites = TLS_AES_256_GCM_SHA384
"""
SHOW = """\
import sys
from tests.unit.tls.test_stores import INLINE, listener
from logyard.broker.tls.context import read_stores, server_context, unasked_suites
settings = listener(INLINE | {"ssl.cipher.suites": sys.argv[1]})
print(unasked_suites(server_context(settings, *read_stores(settings)), settings))
"""


@pytest.mark.parametrize(
    ("suites", "unasked"),
    [
        ("", ()),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", ()),
        ("TLS_AES_256_GCM_SHA384", ("TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")),
        ("TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256", ("TLS_CHACHA20_POLY1305_SHA256",)),
        ("TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256,TLS_CHACHA20_POLY1305_SHA256", ()),
    ],
)
def test_suites_of_tls_1_3_that_stay_are_told(suites: str, unasked: tuple[str, ...]) -> None:
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": ROOT.pem}
    given = INLINE | trust | ({"ssl.cipher.suites": suites} if suites else {})
    settings = listener(given)
    assert unasked_suites(server_context(settings, *read_stores(settings)), settings) == unasked
    with capture_logs() as logged:
        TlsListeners(Handshakes()).open(BrokerConfig.parse("", HEAD | given))
    assert [line["suites"] for line in logged] == ([", ".join(unasked)] if unasked else [])


def test_openssls_own_configuration_chooses_suites_of_tls_1_3(tmp_path: Path) -> None:
    """As docs/security.md says it."""
    chosen = tmp_path / "openssl.cnf"
    chosen.write_text(ONE_SUITE)
    ran = subprocess.run(
        [sys.executable, "-c", SHOW, "TLS_AES_256_GCM_SHA384"],
        env={**os.environ, "OPENSSL_CONF": str(chosen)},
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert ran.stdout.strip() == "()"


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA", "DHE-RSA-AES256-SHA"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "DHE-RSA-CHACHA20-POLY1305"),
    ],
)
def test_names_of_suites(java: str, openssl: str) -> None:
    from logyard.broker.tls.ciphers import openssl_name

    assert openssl_name(java) == openssl
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(openssl)


def test_a_certificate_of_the_trust_store_is_trusted_by_itself() -> None:
    """As in Java: the issuer of a trusted certificate need not be there."""
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": MIDDLE.pem}
    settings = listener(INLINE | trust)
    stores = read_stores(settings)
    handshake(server_context(settings, *stores), client_context(settings, *stores))


@pytest.mark.parametrize(
    ("hosts", "common", "host", "accepted"),
    [
        (["broker.example"], "x", "broker.example", True),
        (["*.yard.example"], "x", "broker.yard.example", True),
        (["127.0.0.1"], "x", "127.0.0.1", True),
        (["::1"], "x", "::1", True),
        ([], "broker.example", "broker.example", True),
        (["broker.example"], "x", "other.example", False),
        (["broker.example"], "other.example", "other.example", False),
        (["broker.example"], "x", "127.0.0.1", False),
        ([], "broker.example", "other.example", False),
    ],
)
def test_names_of_servers(hosts: list[str], common: str, host: str, accepted: bool) -> None:
    """Alternative names count; the common name does only where there are none."""
    own = ROOT.issue(common, hosts)
    given = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": own.key_pem,
        "ssl.keystore.certificate.chain": own.chain_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": ROOT.pem,
    }
    settings = listener(given)
    stores = read_stores(settings)
    server, client = server_context(settings, *stores), client_context(settings, *stores)
    if accepted:
        handshake(server, client, host)
    else:
        with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
            handshake(server, client, host)


@pytest.mark.parametrize(
    "form",
    [
        lambda text: text,
        lambda text: text + "\n\n\n",
        lambda text: "\n\n" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "Bag Attributes\n    friendlyName: own\n" + text,
        lambda text: text.rstrip("\n"),
    ],
)
def test_pem_text_of_every_form(form: Callable[[str], str]) -> None:
    """And several trusted certificates, whose order does not count."""
    given = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": form(OWN.key_pem),
        "ssl.keystore.certificate.chain": form(OWN.chain_pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": form(Authority("another").pem + ROOT.pem),
    }
    settings = listener(given)
    keys, trust = read_stores(settings)
    assert trust is not None
    assert len(trust.certificates) == 2
    handshake(server_context(settings, keys, trust), client_context(settings, keys, trust))
