"""A certificate authority for tests: certificates of brokers and clients, as PEM files, PKCS12 files and text.

authority = Authority(tmp_path)
broker = authority.issue("localhost", names=("localhost", "127.0.0.1"))
alice = authority.issue("alice")
broker.pem          # key, certificate and chain in one file, as Kafka's PEM key store
alice.certificate, alice.key, authority.certificate
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from logyard.local.authority import subject
from tests.support import certificates


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
        self._root = certificates.Authority(name)
        self.certificate = self._root.write_pem(directory / "ca.pem")

    def issue(
        self, common_name: str, names: Sequence[str] = (), *, organisation: str = "Logyard", password: str = ""
    ) -> Issued:
        """Sign a certificate for `O=…,CN=…`; `names` are its SANs (addresses or host names).

        With a password the key files are encrypted; the PKCS12 file always is (without one by "changeit").
        """
        made = self._root.issue(subject(common_name, organisation), names)
        made = certificates.Issued(made.key, (*made.chain, self._root.certificate))
        key, kept = made.encrypted_key_pem(password or None), password or "changeit"
        of = {suffix: self._directory / f"{common_name}{suffix}" for suffix in (".crt", ".key", ".pem", ".p12")}
        for suffix, text in {".crt": made.chain_pem, ".key": key, ".pem": key + made.chain_pem}.items():
            of[suffix].write_text(text)
        made.write_pkcs12(of[".p12"], kept)
        return Issued(f"CN={common_name},O={organisation}", of[".crt"], of[".key"], of[".pem"], of[".p12"], kept)
