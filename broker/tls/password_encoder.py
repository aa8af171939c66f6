"""Passwords as /config/brokers/N holds them: encrypted with password.encoder.secret, in Kafka's format (facts §18.2).

`keyFactoryAlgorithm:PBKDF2WithHmacSHA512,salt:…,encryptedPassword:…,…`: either kind of broker reads what the other has
written. What cannot be decrypted with the secret is tried with password.encoder.old.secret, for a change of the secret.
"""

import base64
import hashlib
import os

from logyard.broker.config.typed_values import TypedValues
from logyard.broker.late_import import imported_when_used

_PRIMITIVES = "cryptography.hazmat.primitives"
with imported_when_used(
    *(f"{_PRIMITIVES}.{name}" for name in ("padding", "ciphers", "ciphers.algorithms", "ciphers.modes"))
):
    from cryptography.hazmat.primitives import ciphers, padding
    from cryptography.hazmat.primitives.ciphers import algorithms, modes

_DIGESTS = {f"PBKDF2WithHmacSHA{bits}": f"sha{bits}" for bits in ("1", "224", "256", "384", "512")}
_KEY_FACTORY = "PBKDF2WithHmacSHA512"
_CIPHER = "AES/CBC/PKCS5Padding"
_SALT_BYTES = 256
_BLOCK_BITS = 128
# More would hold up the event loop; what is stored may come from others.
_ITERATIONS_MAX = 1_000_000


class PasswordEncoder:
    """The secrets and algorithms of one broker's configuration."""

    def __init__(self, config: TypedValues) -> None:
        secrets = [config.optional_str("password.encoder.secret"), config.optional_str("password.encoder.old.secret")]
        self._secrets = [secret for secret in secrets if secret]
        self._can_encode = bool(secrets[0])
        self._factory = config.optional_str("password.encoder.keyfactory.algorithm") or _KEY_FACTORY
        self._cipher = config.str("password.encoder.cipher.algorithm")
        self._key_bits = config.int("password.encoder.key.length")
        self._iterations = config.int("password.encoder.iterations")
        self._known: dict[str, str] = {}  # encoded → password: each takes milliseconds

    def encode(self, password: str) -> str:
        """Encrypt a password. Raises ValueError, whose text says which key is missing or cannot be used."""
        if not self._can_encode:
            raise ValueError("password.encoder.secret is not set, so that no password can be stored")
        if self._factory not in _DIGESTS or self._cipher != _CIPHER:
            raise ValueError(
                f"password.encoder.*: passwords are encrypted with {_CIPHER} and one of {', '.join(_DIGESTS)} only"
            )
        salt, vector = os.urandom(_SALT_BYTES), os.urandom(_BLOCK_BITS // 8)
        plain = password.encode()
        key = self._key(self._secrets[0], self._factory, salt, self._iterations, self._key_bits)
        padder = padding.PKCS7(_BLOCK_BITS).padder()
        encryptor = ciphers.Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
        hidden = encryptor.update(padder.update(plain) + padder.finalize()) + encryptor.finalize()
        parts = {
            "keyFactoryAlgorithm": self._factory,
            "cipherAlgorithm": self._cipher,
            "keyLength": self._key_bits,
            "salt": base64.b64encode(salt).decode(),
            "iterations": self._iterations,
            "encryptedPassword": base64.b64encode(hidden).decode(),
            "passwordLength": _java_length(password),
            "initializationVector": base64.b64encode(vector).decode(),
        }
        encoded = ",".join(f"{name}:{value}" for name, value in parts.items())
        self._known[encoded] = password
        return encoded

    def decode(self, encoded: str) -> str:
        """Return the password. Raises ValueError, whose text has nothing of it."""
        if encoded not in self._known:
            self._known[encoded] = self._decoded(encoded)
        return self._known[encoded]

    def _decoded(self, encoded: str) -> str:
        for secret in self._secrets:
            try:
                return self._decrypted(encoded, secret)
            except (ValueError, KeyError, OverflowError):
                continue
        raise ValueError("the stored password cannot be decrypted with password.encoder.secret")

    def _decrypted(self, encoded: str, secret: str) -> str:
        parts = dict(part.split(":", 1) for part in encoded.split(","))
        iterations, key_bits = int(parts["iterations"]), int(parts["keyLength"])
        if not 0 < iterations <= _ITERATIONS_MAX or parts["cipherAlgorithm"] != _CIPHER:
            raise ValueError("another algorithm")
        salt, vector, hidden = (
            base64.b64decode(parts[name], validate=True)
            for name in ("salt", "initializationVector", "encryptedPassword")
        )
        key = self._key(secret, parts["keyFactoryAlgorithm"], salt, iterations, key_bits)
        decryptor = ciphers.Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor()
        unpadder = padding.PKCS7(_BLOCK_BITS).unpadder()
        plain = unpadder.update(decryptor.update(hidden) + decryptor.finalize()) + unpadder.finalize()
        password = plain.decode()
        if int(parts["passwordLength"]) not in (_java_length(password), len(password)):  # the latter was once ours
            raise ValueError("another length")
        return password

    @staticmethod
    def _key(secret: str, factory: str, salt: bytes, iterations: int, bits: int) -> bytes:
        return hashlib.pbkdf2_hmac(_DIGESTS[factory], secret.encode(), salt, iterations, bits // 8)


def _java_length(text: str) -> int:
    """Return the length as Java counts it: in units of UTF-16."""
    return len(text.encode("utf-16-le")) // 2
