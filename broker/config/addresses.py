"""Reads max.connections.per.ip.overrides, `address:count,…` by IP addresses or host names, which are not resolved here.

Addresses have one form, that of connections, however they are spelled in settings.
"""

import ipaddress
import re

from logyard.broker.config.key_types import Allowed, ConfigValue

# What every resolver accepts: labels of at most 63 letters, digits, hyphens and underscores.
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_NAME_CHARS_MAX = 253


def address_counts(text: str) -> dict[str, int]:
    """Read the counts by address or host name; raises ValueError, whose text names the wrong entry."""
    found: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, colon, count = entry.rpartition(":")
        host, count = host.strip("[]"), count.strip()
        if not colon or not count.isascii() or not count.isdigit() or len(count) > 10:
            raise ValueError(f"address:count is expected, not {entry!r}")
        if not is_address(host) and not is_name(host):
            raise ValueError(f"{host!r} is neither an address nor a host's name")
        found[canonical(host)] = int(count)
    return found


def canonical(host: str) -> str:
    """Return an address as the system writes those of connections, however it is spelled; a name as it is.

    As in Java the zone of an address does not count, and IPv4 that is written as IPv6 is IPv4.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def is_address(host: str) -> bool:
    """Whether `host` is an IP address, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_name(host: str) -> bool:
    """Whether every resolver would look the name up, be there such a host or not."""
    name = host.removesuffix(".")
    return 0 < len(name) <= _NAME_CHARS_MAX and all(_LABEL.fullmatch(label) for label in name.split("."))


def _accepts(value: ConfigValue) -> bool:
    try:
        address_counts(str(value))
    except ValueError:
        return False
    return True


ADDRESS_COUNTS = Allowed("address:count, comma-separated, by addresses or names of hosts", _accepts)
