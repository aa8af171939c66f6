"""listeners, advertised.listeners and listener.security.protocol.map as endpoints (facts §1, §18)."""

import ipaddress
import re
from collections.abc import Mapping

from logyard.broker.config.security_keys import PROTOCOLS
from logyard.broker.model import Endpoint

_LISTENER = re.compile(r"([^:/]+)://(?:\[([0-9a-zA-Z\-%._:]*)\]|([0-9a-zA-Z\-%._]*)):([0-9]+)")
_HOST_PORT = re.compile(r"(?:\[([0-9a-fA-F:.%]+)\]|([0-9a-zA-Z\-._]+)):([0-9]+)")


def parse_protocol_map(text: str) -> dict[str, str]:
    """Read `NAME:PROTOCOL,…`; raises ValueError naming the entry."""
    protocols: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = entry.partition(":")
        if not colon or not name or protocol.strip() not in PROTOCOLS:
            raise ValueError(f"NAME:PROTOCOL with one of {', '.join(PROTOCOLS)} is expected, not {entry!r}")
        protocols[name.strip().upper()] = protocol.strip()
    return protocols


def parse_endpoints(text: str, protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """Read `NAME://host:port,…`; an empty host means every interface. Raises ValueError naming the entry."""
    endpoints: list[Endpoint] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        match = _LISTENER.fullmatch(entry)
        if match is None or int(match[4]) > 65535:
            raise ValueError(f"NAME://host:port is expected, not {entry!r}")
        name = match[1].upper()
        if name not in protocols:
            raise ValueError(f"listener {name} has no protocol in listener.security.protocol.map")
        endpoints.append(Endpoint(name, protocols[name], match[2] or match[3] or "", int(match[4])))
    return tuple(endpoints)


def parse_host_port(text: str) -> tuple[str, int]:
    """Read `host:port`, an IPv6 address in brackets; raises ValueError."""
    match = _HOST_PORT.fullmatch(text.strip())
    if match is None or int(match[3]) > 65535:
        raise ValueError(f"host:port is expected, not {text!r}")
    return match[1] or match[2], int(match[3])


def is_unspecified(host: str) -> bool:
    """Whether it means every address of the machine: a host to bind, not one to connect to."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def listen_problems(listeners: tuple[Endpoint, ...]) -> list[str]:
    """Return what is wrong with the addresses to bind, a line each."""
    problems = []
    if not listeners:
        problems.append("listeners: at least one NAME://host:port is expected")
    names = [e.listener for e in listeners]
    problems += [f"listeners: {name} is there twice" for name in dict.fromkeys(names) if names.count(name) > 1]
    bound = [(e.host, e.port) for e in listeners if e.port]
    problems += [f"listeners: {h}:{p} is there twice" for h, p in dict.fromkeys(bound) if bound.count((h, p)) > 1]
    return problems


def advertise_problems(
    advertised: tuple[Endpoint, ...], listeners: tuple[Endpoint, ...], inter_broker: str, control_plane: str | None
) -> list[str]:
    """Return what is wrong with the advertised addresses, a line each; the last two are names of listeners."""
    names = {e.listener for e in listeners}
    problems = [
        f"advertised.listeners: {e.listener} is not among listeners" for e in advertised if e.listener not in names
    ]
    problems += [
        f"advertised.listeners: {e.listener} needs an address that others can reach, not {e.host or 'an empty host'}"
        for e in advertised
        if not e.host or is_unspecified(e.host)
    ]
    told = {e.listener for e in advertised}
    if inter_broker not in told:
        problems.append(f"inter.broker.listener.name: {inter_broker} is not among advertised.listeners")
    if control_plane and control_plane not in told:
        problems.append(f"control.plane.listener.name: {control_plane} is not among advertised.listeners")
    if control_plane == inter_broker:
        problems.append("control.plane.listener.name: another listener than that between brokers is expected")
    return problems
