"""The TLS context of a client, out of PEM files, PKCS12 files or PEM text."""

import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path

from logyard.login.security import BadSettings, Security

_PEM = b"-----BEGIN "
_CERTIFICATE = re.compile(r"-----BEGIN (X509 )?CERTIFICATE-----[^-]*-----END (X509 )?CERTIFICATE-----")
_JKS = b"\xfe\xed\xfe\xed"


def context(security: Security) -> ssl.SSLContext:
    """A context that trusts the given authorities alone (without any: the system's) and shows the given certificate.

    Raises BadSettings with the file and what is wrong with it.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.check_hostname = security.ssl_check_hostname and security.ssl_check_certificate
    if not security.ssl_check_certificate:
        made.verify_mode = ssl.CERT_NONE
    _trust(made, security)
    _show(made, security)
    return made


def authorities(security: Security) -> str | None:
    """The certificates that are trusted, as PEM text and nothing else; None: the system's.

    Raises BadSettings, also where there are none: librdkafka would trust the system's for an empty text.
    """
    if security.ssl_ca is None and security.ssl_cafile is None:
        return None
    found = _authorities(security)
    if not found:
        raise BadSettings(_no_authorities(security, "there is no certificate in it"))
    return found


def _no_authorities(security: Security, why: str) -> str:
    where = security.ssl_cafile if security.ssl_ca is None else "given as text"
    return f"the CA certificates ({where}) cannot be read: {why}"


def _authorities(security: Security) -> str:
    if security.ssl_ca is not None:
        return certificates(text(security.ssl_ca))
    assert security.ssl_cafile is not None
    where = Path(security.ssl_cafile)
    if where.is_dir():
        return "".join(certificates(_ascii(file.read_bytes())) for file in sorted(where.glob("*.[0-9]")))
    content = _read("ssl_cafile", security.ssl_cafile)
    if _PEM in content:
        return certificates(_ascii(content))
    return _pkcs12("ssl_cafile", content, security.ssl_ca_password)[1]


def is_pkcs12(name: str, path: str) -> bool:
    """Whether this is a file without PEM, whatever its name is. Raises BadSettings if it cannot be read."""
    return Path(path).is_file() and _PEM not in _read(name, path)


def certificates(text: str) -> str:
    """The certificates in a text, without keys, which tasks may not have, and comments, which may be in any script."""
    return "".join(f"{found[0]}\n" for found in _CERTIFICATE.finditer(text))


def _ascii(content: bytes) -> str:
    return content.decode("ascii", "replace")


def trust_each(made: ssl.SSLContext) -> None:
    """Have a context trust each of its authorities by itself, as Java does: also one that another has signed, and one
    without a key usage, which Python's default refuses from 3.13 on."""
    made.verify_flags = made.verify_flags & ~ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN


def _trust(made: ssl.SSLContext, security: Security) -> None:
    trust_each(made)
    try:
        if security.ssl_ca is not None:
            made.load_verify_locations(cadata=certificates(text(security.ssl_ca)) or "none")
        elif security.ssl_cafile is None:
            made.load_default_certs()
        elif Path(security.ssl_cafile).is_dir():
            made.load_verify_locations(capath=security.ssl_cafile)
        else:
            content = _read("ssl_cafile", security.ssl_cafile)
            if _PEM in content:
                made.load_verify_locations(security.ssl_cafile)
            else:
                found = _pkcs12("ssl_cafile", content, security.ssl_ca_password)[1]
                made.load_verify_locations(cadata=found or "none")
    except ssl.SSLError as problem:
        raise BadSettings(_no_authorities(security, problem.reason or str(problem))) from None


def _show(made: ssl.SSLContext, security: Security) -> None:
    certificate, key = security.ssl_certificate, security.ssl_key
    if certificate is not None:
        if key is None and security.ssl_keyfile is not None:
            key = _read("ssl_keyfile", security.ssl_keyfile).decode(errors="replace")
        if key is None:
            raise BadSettings("ssl_certificate is given without ssl_key")
        shown = text(key) + "\n" + text(certificate)
    elif security.ssl_certfile is None:
        return
    else:
        content = _read("ssl_certfile", security.ssl_certfile)
        if _PEM in content:
            _load(made, security.ssl_certfile, security.ssl_keyfile, security.ssl_password)
            return
        key, chain = _pkcs12("ssl_certfile", content, security.ssl_password)
        if not key:
            raise BadSettings(f"ssl_certfile {security.ssl_certfile}: it holds no private key")
        with _private(key + chain) as path:
            _load(made, path, None, None, shown=security.ssl_certfile)
        return
    with _private(shown) as path:
        _load(made, path, None, security.ssl_password, shown="given as text")


def _load(made: ssl.SSLContext, certificate: str, key: str | None, password: str | None, shown: str = "") -> None:
    try:
        # A callable: with None the library would ask at the terminal for the password of an encrypted key.
        made.load_cert_chain(certificate, key, lambda: password or "")
    except (ssl.SSLError, OSError) as problem:
        reason = getattr(problem, "reason", None) or problem.strerror or "cannot be read"
        where = shown or (certificate if key in (None, certificate) else f"{certificate}, {key}")
        advice = "" if password else "; is ssl_password missing?"
        raise BadSettings(f"the client's certificate and key ({where}): {reason}{advice}") from None


@contextlib.contextmanager
def _private(text: str) -> Iterator[str]:
    """The text in a file that only this user can read, for as long as the library needs to load it."""
    descriptor, path = tempfile.mkstemp(prefix="logyard-tls-")  # created with mode 0600
    try:
        with open(descriptor, "w") as file:
            file.write(text)
        yield path
    finally:
        os.unlink(path)


def _read(name: str, path: str) -> bytes:
    try:
        content = Path(path).read_bytes()
    except OSError as problem:
        raise BadSettings(f"{name} {path}: {problem.strerror}") from None
    if content.startswith(_JKS):
        raise BadSettings(
            f"{name} {path} is a JKS store: convert it with `keytool -importkeystore -srckeystore {path} "
            "-destkeystore STORE.p12 -deststoretype PKCS12`"
        )
    return content


def text(given: str) -> str:
    """PEM text out of a form or a properties file, where its line breaks may have become blanks or `\\n`."""
    given = given.strip().replace("\\n", "\n")
    if "\n" in given:
        return given + "\n"
    parts = given.replace("-----BEGIN ", "\n-----BEGIN ").split("\n")
    return "\n".join(_block(part) for part in parts if part.strip()) + "\n"


def _block(text: str) -> str:
    """One block, `-----BEGIN X----- BASE64 -----END X-----`, on lines of its own."""
    head, _, rest = text.strip().removeprefix("-----BEGIN ").partition("-----")
    body, _, _ = rest.partition("-----END ")
    return f"-----BEGIN {head}-----\n" + "\n".join(body.split()) + f"\n-----END {head}-----"


def _pkcs12(name: str, content: bytes, password: str | None) -> tuple[str, str]:
    """The key ("" for none) and the certificates of a PKCS12 store, as PEM. Raises BadSettings."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise BadSettings(f"{name}: a PKCS12 store needs the package cryptography; or convert it to PEM") from None
    try:
        store = pkcs12.load_pkcs12(content, (password or "").encode() or None)
    except UnsupportedAlgorithm:
        raise BadSettings(f"{name}: the store is encrypted in a way that is not supported: convert it to PEM") from None
    except ValueError:
        raise BadSettings(f"{name}: neither PEM nor a PKCS12 store, or its password is wrong") from None
    key = ""
    if store.key is not None:
        key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    shown = [store.cert] if store.cert is not None else []
    certificates = [one.certificate.public_bytes(Encoding.PEM).decode() for one in [*shown, *store.additional_certs]]
    return key, "".join(certificates)
