"""Key stores and trust stores: PEM (files, or the text itself: KIP-651) and PKCS12, by Kafka's rules (facts §18.2).

As in Java a store of type JKS may be a PKCS12 file; a file in Java's
own format is refused with the command that converts it. No message and no repr has a password or a key.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from logyard.broker.config.listener_settings import ListenerSettings
from logyard.broker.late_import import imported_when_used
from logyard.broker.tls.problems import TlsProblem

_PRIMITIVES = "cryptography.hazmat.primitives"
with imported_when_used(
    "cryptography.exceptions",
    "cryptography.x509",
    f"{_PRIMITIVES}.serialization",
    f"{_PRIMITIVES}.serialization.pkcs12",
    *(f"{_PRIMITIVES}.asymmetric.{kind}" for kind in ("dsa", "ec", "ed448", "ed25519", "rsa")),
):
    from cryptography import exceptions, x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import pkcs12

ReadFile = Callable[[str], bytes]
"""Returns a file's content; raises OSError."""

Store = TypeVar("Store")

_JAVA_MAGICS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_PRIVATE_KEY = re.compile(rb"-----BEGIN ([A-Z ]*)PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL)
_PEM = "PEM"
_TYPES = ("JKS", "PKCS12", _PEM)


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A private key, unencrypted in PEM, and its certificate chain, the owner's first (DER)."""

    key: bytes = field(repr=False)
    chain: tuple[bytes, ...]

    @property
    def names(self) -> tuple[bytes, frozenset[tuple[str, str]]]:
        """The certificate's subject (DER) and its alternative names, by kind and text."""
        certificate = x509.load_der_x509_certificate(self.chain[0])
        try:
            found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            found = x509.SubjectAlternativeName([])
        return certificate.subject.public_bytes(), frozenset((type(name).__name__, str(name.value)) for name in found)

    def pem(self) -> bytes:
        """Return key and chain as one text in PEM."""
        return self.key + b"".join(map(_certificate_pem, self.chain))


@dataclass(frozen=True, slots=True)
class TrustStore:
    """Certificates (DER), each of which is trusted by itself, as in Java."""

    certificates: tuple[bytes, ...]


def read_key_store(settings: ListenerSettings, read: ReadFile) -> KeyStore | None:
    """Return the key store of these settings, None if none is configured. Raises TlsProblem."""
    own = _Keys(settings, "ssl.keystore.")
    key, chain = own.text("key"), own.text("certificate.chain")
    if key is None and chain is None:
        return own.read_file(_key_store_of, read)
    if key is None or chain is None:
        missing, present = ("key", "certificate.chain") if key is None else ("certificate.chain", "key")
        raise own.problem(missing, f"is missing beside {own.name(present)}")
    own.only_inline("key")
    return own.attempt("key", lambda: _pem_key_store(key.encode() + b"\n" + chain.encode(), own.key_password))


def read_trust_store(settings: ListenerSettings, read: ReadFile) -> TrustStore | None:
    """Return the trust store of these settings, None if none is configured. Raises TlsProblem."""
    own = _Keys(settings, "ssl.truststore.")
    certificates = own.text("certificates")
    if certificates is None:
        return own.read_file(_trust_store_of, read)
    own.only_inline("certificates")
    return own.attempt("certificates", lambda: TrustStore(_pem_certificates(certificates.encode())))


def subject_of(certificate: bytes) -> bytes:
    """Return the subject (DER) of a certificate (DER). Raises ValueError."""
    return x509.load_der_x509_certificate(certificate).subject.public_bytes()


def certificates_pem(certificates: tuple[bytes, ...]) -> str:
    """Return certificates (DER) as one text in PEM."""
    return b"".join(map(_certificate_pem, certificates)).decode("ascii")


class _Keys:
    """The keys of one store of a listener, `ssl.keystore.` or `ssl.truststore.`, and what is wrong with them."""

    def __init__(self, settings: ListenerSettings, prefix: str) -> None:
        self._settings = settings
        self._prefix = prefix
        self._is_keys = prefix == "ssl.keystore."
        self.type = settings.str(f"{prefix}type").upper()
        if self.type not in _TYPES:
            raise self.problem("type", f"is {self.type}; one of {', '.join(_TYPES)} is expected")

    def text(self, key: str) -> str | None:
        return self._settings.optional_str(self._prefix + key) or None

    def name(self, key: str) -> str:
        return self._settings.name_of(self._prefix + key)

    def problem(self, key: str, words: str) -> TlsProblem:
        return TlsProblem(f"{self.name(key)}: {words}")

    @property
    def key_password(self) -> bytes | None:
        text = self._settings.optional_str("ssl.key.password")
        return text.encode() if text and self._is_keys else None

    def only_inline(self, key: str) -> None:
        """Refuse a type, location or password beside PEM text."""
        if self.type != _PEM:
            raise self.problem(key, f"is for type PEM only: set {self.name('type')}=PEM")
        if self.text("location") is not None:
            raise self.problem(key, f"leave it or {self.name('location')} out")
        self._no_password()

    def _no_password(self) -> None:
        if self.text("password") is not None:
            instead = "set ssl.key.password if the key is encrypted" if self._is_keys else "leave it out"
            raise self.problem("password", f"a PEM store has none: {instead}")

    def read_file(self, load: Callable[["_Keys", bytes], Store], read: ReadFile) -> Store | None:
        path = self.text("location")
        if path is None:
            if self.text("password") is not None:
                raise self.problem("password", f"is set without {self.name('location')}")
            return None
        if self.type == _PEM:
            self._no_password()
        elif self._is_keys and self.text("password") is None:
            raise self.problem("password", f"is needed to read {path}")
        try:
            data = read(path)
        except OSError as error:
            raise self.problem("location", f"{path} cannot be read ({error.strerror})") from None
        if data.startswith(_JAVA_MAGICS):
            kind = "key" if self._is_keys else "trust"
            raise self.problem(
                "location",
                f"{path} is a {kind} store in Java's own format; convert it: keytool -importkeystore "
                f"-srckeystore {path} -srcstoretype JKS -destkeystore {path}.p12 -deststoretype PKCS12",
            )
        return self.attempt("location", lambda: load(self, data), path)

    def attempt(self, key: str, load: Callable[[], Store], path: str = "the text") -> Store:
        try:
            return load()
        except exceptions.UnsupportedAlgorithm:
            why = "it is encrypted in a way that is not supported; write it again with keytool of Java 17 or newer"
        except (ValueError, TypeError) as error:
            why = _why(error, self._is_keys)
        raise self.problem(key, f"{path} cannot be used: {why}") from None


class _Unfit(ValueError):
    """The content is well formed but not what is needed; the text says why, without a secret."""


def _why(error: Exception, is_keys: bool) -> str:
    """Say what a library's error means."""
    if isinstance(error, _Unfit):
        return str(error)
    text = str(error).lower()
    if isinstance(error, TypeError) or any(word in text for word in ("password", "mac ", "decrypt", "padding")):
        passwords = "ssl.keystore.password, ssl.key.password" if is_keys else "ssl.truststore.password"
        return f"the password is wrong or missing ({passwords})"
    return "it is damaged, or of another type than configured"


def _key_store_of(keys: _Keys, data: bytes) -> KeyStore:
    if keys.type == _PEM:
        return _pem_key_store(data, keys.key_password)
    password = keys.text("password")
    key, own, others = pkcs12.load_key_and_certificates(data, None if password is None else password.encode())
    if key is None or own is None:
        raise _Unfit("it has no private key with a certificate")
    rest = [certificate.public_bytes(serialization.Encoding.DER) for certificate in others]
    first = own.public_bytes(serialization.Encoding.DER)
    return KeyStore(_unencrypted(key), _ordered(first, rest))


def _trust_store_of(keys: _Keys, data: bytes) -> TrustStore:
    if keys.type == _PEM:
        return TrustStore(_pem_certificates(data))
    password = keys.text("password")
    _, own, others = pkcs12.load_key_and_certificates(data, None if password is None else password.encode())
    found = [*([own] if own is not None else []), *others]
    if not found:
        raise _Unfit("it has no certificate")
    return TrustStore(tuple(certificate.public_bytes(serialization.Encoding.DER) for certificate in found))


def _pem_key_store(text: bytes, password: bytes | None) -> KeyStore:
    found = list(_PRIVATE_KEY.finditer(text))
    if len(found) != 1:
        raise _Unfit(f"it has {len(found)} private keys, and needs one (PKCS#8 in PEM)")
    is_encrypted = b"ENCRYPTED" in found[0][0]
    key = serialization.load_pem_private_key(found[0][0], password if is_encrypted else None)
    chain = _pem_certificates(text[: found[0].start()] + text[found[0].end() :])
    return KeyStore(_unencrypted(key), chain)


def _pem_certificates(text: bytes) -> tuple[bytes, ...]:
    if b"-----BEGIN CERTIFICATE-----" not in text:
        raise _Unfit("it has no certificate in PEM")
    found = x509.load_pem_x509_certificates(text)
    return tuple(certificate.public_bytes(serialization.Encoding.DER) for certificate in found)


def _unencrypted(key: object) -> bytes:
    if not isinstance(
        key,
        rsa.RSAPrivateKey
        | ec.EllipticCurvePrivateKey
        | dsa.DSAPrivateKey
        | ed25519.Ed25519PrivateKey
        | ed448.Ed448PrivateKey,
    ):
        raise _Unfit("its key is of a kind that TLS does not use")
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _ordered(first: bytes, others: list[bytes]) -> tuple[bytes, ...]:
    """Return the chain from its owner up; what belongs to no chain is left out, as Java does."""
    chain = [x509.load_der_x509_certificate(first)]
    left = [x509.load_der_x509_certificate(other) for other in others]
    while left and chain[-1].issuer != chain[-1].subject:
        above = next((certificate for certificate in left if certificate.subject == chain[-1].issuer), None)
        if above is None:
            break
        left.remove(above)
        chain.append(above)
    return tuple(certificate.public_bytes(serialization.Encoding.DER) for certificate in chain)


def _certificate_pem(certificate: bytes) -> bytes:
    return x509.load_der_x509_certificate(certificate).public_bytes(serialization.Encoding.PEM)
