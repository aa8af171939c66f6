"""What is said about a broker that cannot be reached: which step fails, on real sockets."""

import socket
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from logyard.admin.cluster.reachability import try_server, why_unreachable
from logyard.admin.ports import ClusterUnreachable
from logyard.admin.settings import ClusterSettings
from tests.support.listening import Serve, listening

PROBLEM = ClusterUnreachable("no broker answered")


def silent(link: socket.socket) -> None:
    """Accepts, and says nothing."""
    link.recv(1)


def behind(context: ssl.SSLContext) -> Serve:
    """The same with TLS."""

    def serve(link: socket.socket) -> None:
        context.wrap_socket(link, server_side=True).close()

    return serve


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that signed itself, with its key in one file."""
    from datetime import UTC, datetime, timedelta
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


def test_a_name_that_does_not_resolve_and_a_port_that_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = f"127.0.0.1:{server.getsockname()[1]}"
    settings = ClusterSettings.read(f"no-such-name.invalid:9092,{closed},nonsense")
    said = why_unreachable(settings, PROBLEM, 1.0)
    assert said.startswith("Address: ")
    assert "no-such-name.invalid:9092: the name does not resolve" in said
    assert f"{closed}: nothing listens there" in said
    assert "nonsense: host:port is expected" in said


def test_tls_is_told_from_trust(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with listening(behind(context)) as server, listening(silent) as plain:
        settings = ClusterSettings.read(server, {"security_protocol": "SSL"})
        said = why_unreachable(settings, PROBLEM)
        assert said.startswith("TLS: ")
        assert "is not trusted" in said
        nowhere = replace(settings, bootstrap=("no-such-name.invalid:1", server))
        assert why_unreachable(nowhere, PROBLEM, 1.0).startswith("TLS: "), "the step that was got to"
        trusting = replace(settings, ssl_cafile=str(certificate))
        assert try_server(trusting, server, 1.0).step is None
        assert "TLS works, but no answer as SSL" in why_unreachable(trusting, PROBLEM)
        assert "TLS fails" in why_unreachable(replace(settings, bootstrap=(plain,)), PROBLEM)
        assert "TLS fails" in why_unreachable(replace(settings, ssl_cafile="/nowhere.pem"), PROBLEM)


def test_credentials_are_told_from_a_wrong_protocol() -> None:
    extra = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    with listening(silent) as server:
        settings = ClusterSettings.read(server, extra, username="u", password="secret")
        refused = why_unreachable(settings, ClusterUnreachable("SaslAuthenticationFailed: …"))
        assert refused.startswith("Login: ")
        assert "user 'u' or its password is refused by PLAIN" in refused
        assert "secret" not in refused
        plain = why_unreachable(replace(settings, security_protocol="PLAINTEXT"), PROBLEM)
        assert plain.startswith("Protocol: ")
        assert "connected, but no answer as PLAINTEXT" in plain
