"""Where a schema registry is, and who asks it: from a connection alone, never from a record. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from logyard.login.security import BadSettings

# Ours, and the name that Confluent's clients have for the same.
_NAMES = {
    "url": ("schema_registry_url", "schema.registry.url"),
    "username": ("schema_registry_username",),
    "password": ("schema_registry_password",),
    "cafile": ("schema_registry_cafile", "schema.registry.ssl.ca.location"),
}
_USER_INFO = ("schema.registry.basic.auth.user.info", "basic.auth.user.info")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """`url`: begins with http or https, and has no slash at its end. `cafile`: PEM; None: the system's authorities."""

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    cafile: str | None = None


def read_registry(given: Mapping[str, Any]) -> SchemaRegistry | None:
    """The registry that these settings name; None where they name none. Raises BadSettings, never with a secret."""
    found = {
        key: next((str(given[name]) for name in names if given.get(name) not in (None, "")), None)
        for key, names in _NAMES.items()
    }
    for name in _USER_INFO:
        if found["username"] is None and given.get(name):
            found["username"], _, found["password"] = str(given[name]).partition(":")
    url = found.pop("url")
    if url is None:
        return None
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise BadSettings("schema_registry_url: its host or port cannot be read") from None
    if parts.username is not None or parts.password is not None:
        raise BadSettings("schema_registry_url has a user: give schema_registry_username and schema_registry_password")
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise BadSettings("schema_registry_url: an address such as https://registry:8081 is expected")
    if found["password"] and parts.scheme != "https" and host not in _LOOPBACK:
        raise BadSettings("schema_registry_url: a password is only sent to an address that begins with https")
    return SchemaRegistry(url.strip().rstrip("/"), **found)
