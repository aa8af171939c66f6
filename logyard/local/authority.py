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

VALID = datetime.timedelta(days=3650)
# A certificate is valid from an hour ago on: clocks differ a little.
SKEW = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A key and its certificate, in memory. One of an authority signs others."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def key_pem(self) -> str:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode("ascii")

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")

    def issue(self, of: x509.Name, hosts: Sequence[str] = ()) -> "Pair":
        """Sign a certificate for servers at `hosts` (names or addresses) and for clients."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = _builder(of, key, self).add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        builder = builder.add_extension(usage, critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return Pair(key, builder.sign(self.key, hashes.SHA256()))


def authority(name: str, above: Pair | None = None) -> Pair:
    """Make an authority, signed by the one above it, or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(subject(name), key, above)
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
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    signed = builder.add_extension(usage, critical=True).sign(above.key if above else key, hashes.SHA256())
    return Pair(key, signed)


def subject(common_name: str, organisation: str = "") -> x509.Name:
    """Return a distinguished name; without `organisation` the common name alone."""
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation)] if organisation else []
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


@dataclass(frozen=True, slots=True)
class Issued:
    """The files of one certificate: `pem` has key and chain in one, as Kafka's PEM key stores have them."""

    certificate: Path
    key: Path
    pem: Path


class Authority:
    """The authority of a directory, made at the first use; `certificate` is what others have to trust.

    Raises LocalError if its files are there and are none of an authority.
    """

    def __init__(self, directory: Path, name: str = "Logyard local authority") -> None:
        self.directory = directory
        self.certificate = directory / "ca.pem"
        key_file = directory / "ca.key"
        if key_file.exists() and self.certificate.exists():
            self._own = _read(key_file, self.certificate)
        else:
            self._own = authority(name)
            directory.mkdir(parents=True, exist_ok=True)
            os.chmod(directory, 0o700)
            files.write_text(key_file, self._own.key_pem, files.PRIVATE, is_durable=True)
            files.write_text(self.certificate, self._own.pem, is_durable=True)

    def issue(self, name: str, hosts: Sequence[str] = (), common_name: str | None = None) -> Issued:
        """Issue a certificate for servers at `hosts` (names or addresses) and for clients.

        One that this authority has issued before is kept.
        """
        issued = Issued(*(self.directory / f"{name}{suffix}" for suffix in (".crt", ".key", ".pem")))
        if issued.pem.exists() and issued.pem.read_text().endswith(self._own.pem):
            return issued
        made = self._own.issue(subject(common_name or name), hosts)
        chain = made.pem + self._own.pem
        files.write_text(issued.certificate, chain)
        files.write_text(issued.key, made.key_pem, files.PRIVATE)
        files.write_text(issued.pem, made.key_pem + chain, files.PRIVATE, is_durable=True)
        return issued


def _read(key_file: Path, certificate: Path) -> Pair:
    try:
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        signed = x509.load_pem_x509_certificate(certificate.read_bytes())
    except ValueError as error:
        raise LocalError(f"{key_file} and {certificate} are no key and certificate ({error}): remove both") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != signed.public_key():
        raise LocalError(f"{key_file} is not the key of {certificate}: remove both")
    return Pair(key, signed)


def _builder(of: x509.Name, key: ec.EllipticCurvePrivateKey, above: Pair | None) -> x509.CertificateBuilder:
    begin = datetime.datetime.now(datetime.timezone.utc) - SKEW
    signer = above.key if above else key
    return (
        x509.CertificateBuilder()
        .subject_name(of)
        .issuer_name(above.certificate.subject if above else of)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + VALID)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
