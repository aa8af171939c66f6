"""Certificate authorities, certificates and stores for tests of TLS: made in memory, and written on request."""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_SINCE = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_UNTIL = datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)
PASSWORD = "swordfish"


def name(common: str, organization: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common)])


@dataclass(frozen=True)
class Issued:
    """A key with its chain, the owner's certificate first."""

    key: ec.EllipticCurvePrivateKey
    chain: tuple[x509.Certificate, ...]

    @property
    def key_pem(self) -> str:
        return self.encrypted_key_pem(None)

    def encrypted_key_pem(self, password: str | None) -> str:
        protection = serialization.BestAvailableEncryption(password.encode()) if password else None
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            protection or serialization.NoEncryption(),
        ).decode()

    @property
    def chain_pem(self) -> str:
        return "".join(c.public_bytes(serialization.Encoding.PEM).decode() for c in self.chain)

    def write_pem(self, path: Path) -> Path:
        path.write_text(self.key_pem + self.chain_pem)
        return path

    def write_pkcs12(self, path: Path, password: str = PASSWORD) -> Path:
        protection = serialization.BestAvailableEncryption(password.encode())
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(b"own", self.key, self.chain[0], self.chain[1:], protection)
        )
        return path


class Authority:
    """One CA; `issue` makes certificates for brokers and clients alike."""

    def __init__(self, common: str = "test CA", above: "Authority | None" = None) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self._above = above
        subject = name(common)
        builder = _builder(subject, above.certificate.subject if above else subject, self.key)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate: x509.Certificate = builder.sign(above.key if above else self.key, hashes.SHA256())

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(
        self,
        subject: x509.Name | str,
        hosts: Sequence[str] = ("127.0.0.1", "localhost"),
        *,
        until: datetime.datetime = _UNTIL,
    ) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        owner = name(subject) if isinstance(subject, str) else subject
        builder = _builder(owner, self.certificate.subject, key, until)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative(h) for h in hosts]), critical=False
            )
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        certificate = builder.add_extension(usage, critical=False).sign(self.key, hashes.SHA256())
        return Issued(key, (certificate, *([self.certificate] if self._above else [])))

    def write_pem(self, path: Path) -> Path:
        path.write_text(self.pem)
        return path

    def write_pkcs12(self, path: Path, password: str = PASSWORD) -> Path:
        protection = serialization.BestAvailableEncryption(password.encode())
        trusted = [pkcs12.PKCS12Certificate(self.certificate, b"ca")]
        path.write_bytes(pkcs12.serialize_java_truststore(trusted, protection))
        return path


def pem_settings(prefix: str, own: Issued | None, trusted: Authority | None) -> dict[str, str]:
    """Return the settings of inline PEM stores, under `prefix` (`listener.name.x.`, or nothing)."""
    found = {f"{prefix}ssl.keystore.type": "PEM", f"{prefix}ssl.truststore.type": "PEM"}
    if own is not None:
        found |= {
            f"{prefix}ssl.keystore.key": own.key_pem.replace("\n", "\\n"),
            f"{prefix}ssl.keystore.certificate.chain": own.chain_pem.replace("\n", "\\n"),
        }
    if trusted is not None:
        found[f"{prefix}ssl.truststore.certificates"] = trusted.pem.replace("\n", "\\n")
    return found


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    until: datetime.datetime = _UNTIL,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_SINCE)
        .not_valid_after(until)
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
