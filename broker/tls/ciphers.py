"""Protocols and cipher suites by Java's names, as OpenSSL knows them."""

from collections.abc import Iterable
from ssl import TLSVersion

VERSIONS = {"TLSv1.2": TLSVersion.TLSv1_2, "TLSv1.3": TLSVersion.TLSv1_3}
# Kafka's settings may still name these; Java refuses them too.
OUTDATED = frozenset({"SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"})
SUITES_OF_TLS_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite of TLS 1.2; a name that is not of Java's form is returned as it is.

    TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 is ECDHE-RSA-AES256-GCM-SHA384, TLS_RSA_WITH_AES_128_CBC_SHA is AES128-SHA.
    """
    head, with_, tail = suite.partition("_WITH_")
    if not with_:
        return suite
    exchange = head.removeprefix("TLS_").removeprefix("SSL_").replace("_", "-")
    cipher, _, digest = tail.rpartition("_")
    for bits in ("128", "256"):
        cipher = cipher.replace(f"_{bits}", bits)
    cipher = cipher.removesuffix("_CBC").replace("_", "-").replace("3DES-EDE", "DES-CBC3")
    parts = [*([] if exchange == "RSA" else [exchange]), cipher]
    return "-".join(parts if cipher == "CHACHA20-POLY1305" else [*parts, digest])


def versions(names: Iterable[str]) -> list[TLSVersion]:
    """Return the versions of these names, outdated ones left out. Raises ValueError naming one that is unknown."""
    found = []
    for name in names:
        if name not in VERSIONS and name not in OUTDATED:
            raise ValueError(f"{name!r} is unknown; TLSv1.2 and TLSv1.3 are served")
        if name in VERSIONS:
            found.append(VERSIONS[name])
    if not found:
        raise ValueError("TLSv1.2 or TLSv1.3 is needed; older ones are not served")
    return found
