"""Certificate authorities, certificates and stores for tests of TLS: made in memory, and written on request.

    root = Authority("root")
    own = Authority("middle", above=root).issue("broker")     # with its chain
    own.write_pem(tmp_path / "broker.pem"), root.write_pkcs12(tmp_path / "trusted.p12")

The certificates are those of `logyard/local/authority.py`. `tests/support/authority.py` has them as files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from logyard.local.authority import Pair, authority, subject

PASSWORD = "swordfish"


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
        self.own: Pair = authority(common, above.own if above else None)
        self._is_root = above is None

    @property
    def certificate(self) -> x509.Certificate:
        return self.own.certificate

    @property
    def pem(self) -> str:
        return self.own.pem

    def issue(self, of: x509.Name | str, hosts: Sequence[str] = ("127.0.0.1", "localhost")) -> Issued:
        made = self.own.issue(subject(of) if isinstance(of, str) else of, hosts)
        return Issued(made.key, (made.certificate, *(() if self._is_root else (self.certificate,))))

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
