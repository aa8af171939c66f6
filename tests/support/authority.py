"""A certificate authority for tests: certificates of brokers and clients, as PEM files, PKCS12 files and text.

authority = Authority(tmp_path)
broker = authority.issue("localhost", names=("localhost", "127.0.0.1"))
alice = authority.issue("alice")
broker.pem          # key, certificate and chain in one file, as Kafka's PEM key store
alice.certificate, alice.key, authority.certificate
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Issued:
    """Files of one certificate. `pem` holds key and chain; `pkcs12` the same, with the password."""

    subject: str
    certificate: Path
    key: Path
    pem: Path
    pkcs12: Path
    password: str


class Authority:
    """One root; `certificate` is its PEM file."""

    def __init__(self, directory: Path, name: str = "Test authority") -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = _builder(self._name, self._name, self._key.public_key(), timedelta())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._root = builder.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())
        self.certificate = directory / "ca.pem"
        self.certificate.write_bytes(self._root.public_bytes(Encoding.PEM))

    def issue(
        self,
        common_name: str,
        names: Sequence[str] = (),
        *,
        organisation: str = "Logyard",
        password: str = "",
        expired: bool = False,
    ) -> Issued:
        """Sign a certificate for `O=…,CN=…`; `names` are its SANs (addresses or host names).

        With a password the key files are encrypted; the PKCS12 file always is (without one by "changeit").
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation),
                x509.NameAttribute(NameOID.COMMON_NAME, common_name),
            ]
        )
        ago = timedelta(days=-10) if expired else timedelta()
        builder = _builder(subject, self._name, key.public_key(), ago)
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_san(name) for name in names]), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())

        base = self._directory / common_name
        hidden: KeySerializationEncryption = NoEncryption()
        if password:
            hidden = BestAvailableEncryption(password.encode())
        key_text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden)
        chain = certificate.public_bytes(Encoding.PEM) + self._root.public_bytes(Encoding.PEM)
        kept = password or "changeit"
        store = pkcs12.serialize_key_and_certificates(
            common_name.encode(), key, certificate, [self._root], BestAvailableEncryption(kept.encode())
        )
        files = {".crt": chain, ".key": key_text, ".pem": key_text + chain, ".p12": store}
        for suffix, content in files.items():
            base.with_name(base.name + suffix).write_bytes(content)
        of = {suffix: base.with_name(base.name + suffix) for suffix in files}
        subject_text = f"CN={common_name},O={organisation}"
        return Issued(subject_text, of[".crt"], of[".key"], of[".pem"], of[".p12"], kept)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, ago: timedelta
) -> x509.CertificateBuilder:
    begin = datetime.now(UTC) - timedelta(hours=1) + ago
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + _LIFE)
    )


def _san(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
