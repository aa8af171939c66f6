"""SSL contexts from a listener's settings: one for its server side, one for this broker as a client of its kind.

What cannot be used is a TlsProblem, one line that names the key. A context is never changed: when stores are read
again there is a new one, and connections keep theirs.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logyard.broker.config.listener_settings import ListenerSettings
from logyard.broker.tls.ciphers import SUITES_OF_TLS_1_3, openssl_name, versions
from logyard.broker.tls.problems import TlsProblem
from logyard.broker.tls.stores import (
    KeyStore,
    ReadFile,
    TrustStore,
    certificates_pem,
    read_key_store,
    read_trust_store,
)

_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def read_file(path: str) -> bytes:
    """Return a file's content; raises OSError."""
    return Path(path).read_bytes()


def server_context(settings: ListenerSettings, keys: KeyStore | None, trust: TrustStore | None) -> ssl.SSLContext:
    """Return the context of a listener. Raises TlsProblem."""
    if keys is None:
        raise TlsProblem(
            f"{settings.name_of('ssl.keystore.location')}: listener {settings.name} speaks {settings.protocol} "
            "and needs a key store with the broker's key and certificate"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    _prepare(context, settings, keys, trust)
    # A client could otherwise make the broker compute handshakes without end on one connection.
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def client_context(
    settings: ListenerSettings, keys: KeyStore | None, trust: TrustStore | None, *, checks_names: bool = True
) -> ssl.SSLContext:
    """Return the context for connections to such a listener of other brokers. Raises TlsProblem."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    algorithm = settings.optional_str("ssl.endpoint.identification.algorithm") or ""
    if algorithm.lower() not in ("", "https"):
        raise TlsProblem(
            f"{settings.name_of('ssl.endpoint.identification.algorithm')}: https, or nothing, is expected, "
            f"not {algorithm!r}"
        )
    context.check_hostname = bool(algorithm) and checks_names
    _prepare(context, settings, keys, trust)
    return context


def read_stores(settings: ListenerSettings, read: ReadFile = read_file) -> tuple[KeyStore | None, TrustStore | None]:
    """Read both stores of a listener; None for one that is not configured. Raises TlsProblem."""
    return read_key_store(settings, read), read_trust_store(settings, read)


def _prepare(
    context: ssl.SSLContext, settings: ListenerSettings, keys: KeyStore | None, trust: TrustStore | None
) -> None:
    """Set protocols, cipher suites, key and trusted certificates."""
    if settings.optional_str("ssl.engine.factory.class"):
        raise TlsProblem(f"{settings.name_of('ssl.engine.factory.class')}: Java classes cannot be used; leave it out")
    _restrict(context, settings)
    # As in Java each certificate of the trust store is trusted by itself, whoever has signed it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if trust is None:
        context.load_default_certs(
            ssl.Purpose.CLIENT_AUTH if context.protocol == ssl.PROTOCOL_TLS_SERVER else ssl.Purpose.SERVER_AUTH
        )
    else:
        context.load_verify_locations(cadata=certificates_pem(trust.certificates))
    if keys is None:
        return
    try:
        with _private_file(keys.pem()) as path:
            context.load_cert_chain(path)
    except ssl.SSLError as error:
        key = settings.name_of("ssl.keystore.location")
        raise TlsProblem(f"{key}: the key or certificate cannot be used ({_reason(error)})") from None


def _restrict(context: ssl.SSLContext, settings: ListenerSettings) -> None:
    """Leave only the configured versions and cipher suites."""
    try:
        allowed = versions(settings.list("ssl.enabled.protocols"))
    except ValueError as problem:
        raise TlsProblem(f"{settings.name_of('ssl.enabled.protocols')}: {problem}") from None
    suites = settings.list("ssl.cipher.suites")
    if suites:
        key = settings.name_of("ssl.cipher.suites")
        older = [suite for suite in suites if suite not in SUITES_OF_TLS_1_3]
        if len(older) == len(suites):
            allowed = [version for version in allowed if version is not ssl.TLSVersion.TLSv1_3]
        if not older:
            allowed = [version for version in allowed if version is not ssl.TLSVersion.TLSv1_2]
        if not allowed:
            raise TlsProblem(f"{key}: no suite of the versions in {settings.name_of('ssl.enabled.protocols')}")
        _set_suites(context, older, key)
    context.minimum_version, context.maximum_version = min(allowed), max(allowed)


def unasked_suites(context: ssl.SSLContext, settings: ListenerSettings) -> tuple[str, ...]:
    """Return the suites of TLS 1.3 that the context takes although `ssl.cipher.suites` names others of 1.3 only.

    Python's `ssl` cannot choose them; OpenSSL's own configuration can (docs/security.md).
    """
    asked = set(settings.list("ssl.cipher.suites")).intersection(SUITES_OF_TLS_1_3)
    taken = (suite["name"] for suite in context.get_ciphers() if suite["protocol"] == "TLSv1.3")
    return tuple(name for name in taken if name not in asked) if asked else ()


def _set_suites(context: ssl.SSLContext, suites: list[str], key: str) -> None:
    """Set the suites of TLS 1.2. Those of 1.3 cannot be chosen with Python's ssl: `unasked_suites`."""
    for suite in suites:
        try:
            context.set_ciphers(openssl_name(suite))
        except ssl.SSLError:
            raise TlsProblem(f"{key}: {suite!r} is not available; leave it out") from None
    if suites:
        context.set_ciphers(":".join(map(openssl_name, suites)))


@contextmanager
def _private_file(data: bytes) -> Iterator[str]:
    """Give data a path while the block runs: `ssl` reads keys from files only. It is in memory where that works."""
    if hasattr(os, "memfd_create"):
        descriptor, path = os.memfd_create("key", os.MFD_CLOEXEC), None
        name = f"/proc/self/fd/{descriptor}"
    else:
        descriptor, path = tempfile.mkstemp()
        name = path
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(data)
        yield name
    finally:
        os.close(descriptor)
        if path is not None:
            Path(path).unlink()


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "unknown").lower().replace("_", " ")
