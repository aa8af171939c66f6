"""Addresses of clients as text."""

import ipaddress


def plain(host: str) -> str:
    """Return an IPv4 address that is written as IPv6 as IPv4; any other as it is."""
    return host.removeprefix("::ffff:") if host.startswith("::ffff:") and "." in host else host


def as_java(host: str) -> str:
    """Return an address as Java writes it, and so the hosts of ACLs: IPv6 in full, without leading zeros."""
    host = plain(host)
    if ":" not in host:
        return host
    address, percent, zone = host.partition("%")
    try:
        groups = ipaddress.IPv6Address(address).exploded.split(":")
    except ValueError:
        return host
    return ":".join(f"{int(group, 16):x}" for group in groups) + percent + zone
