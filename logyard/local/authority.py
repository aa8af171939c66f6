"""A certificate authority for one machine: it signs the certificates of a secured cluster and of its clients.

Its key stays in the cluster's directory, readable for its owner only. It is for trying things out and for tests: a
company has an authority of its own.
"""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from logyard.local import files
from logyard.local.errors import LocalError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    raise LocalError("certificates need the package `cryptography`: install logyard[local]") from None

VALID_DAYS = 3650
# A certificate is valid from an hour ago on: clocks differ a little.
SKEW = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Issued:
    """The files of one certificate: `pem` has key and chain in one, as Kafka's PEM key stores have them."""

    certificate: Path
    key: Path
    pem: Path


class Authority:
    """The authority of a directory, made at the first use; `certificate` is what others have to trust."""

    def __init__(self, directory: Path, name: str = "Logyard local authority") -> None:
        self.directory = directory
        self.certificate = directory / "ca.pem"
        self._key_file = directory / "ca.key"
        if self._key_file.exists() and self.certificate.exists():
            self._certificate = x509.load_pem_x509_certificate(self.certificate.read_bytes())
            key = serialization.load_pem_private_key(self._key_file.read_bytes(), None)
            assert isinstance(key, ec.EllipticCurvePrivateKey)
            self._key = key
        else:
            self._key = ec.generate_private_key(ec.SECP256R1())
            self._certificate = self._signed_by_itself(name)
            directory.mkdir(parents=True, exist_ok=True)
            os.chmod(directory, 0o700)
            files.write_text(self._key_file, _key_text(self._key), files.PRIVATE)
            files.write_text(self.certificate, _text(self._certificate))

    def issue(self, name: str, hosts: Sequence[str] = (), common_name: str | None = None) -> Issued:
        """Issue a certificate for servers at `hosts` (names or addresses) and for clients; kept if its files exist."""
        issued = Issued(*(self.directory / f"{name}{suffix}" for suffix in (".crt", ".key", ".pem")))
        if issued.pem.exists():
            return issued
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            self._builder(common_name or name, self._certificate.subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), False
            )
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), False)
        certificate = builder.sign(self._key, hashes.SHA256())
        chain = _text(certificate) + _text(self._certificate)
        files.write_text(issued.certificate, chain)
        files.write_text(issued.key, _key_text(key), files.PRIVATE)
        files.write_text(issued.pem, _key_text(key) + chain, files.PRIVATE)
        return issued

    def _signed_by_itself(self, name: str) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        return (
            self._builder(name, subject, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )

    def _builder(self, name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - SKEW)
            .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode("ascii")
