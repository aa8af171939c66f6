"""What has to hold for `http.*`: where HTTP listens, where others reach it, whose TLS and log-ins it shares."""

import ipaddress
from collections.abc import Callable, Sequence
from typing import Protocol

from logyard.broker.config.endpoints import is_unspecified, parse_host_port
from logyard.broker.config.listener_keys import prefixed
from logyard.broker.config.listener_settings import ListenerSettings
from logyard.broker.config.typed_values import TypedValues
from logyard.broker.model import Endpoint


class WithListeners(Protocol):
    """A broker's configuration."""

    def optional_str(self, name: str) -> str | None: ...
    def listener(self, name: str, *, only_asks: bool = False) -> ListenerSettings: ...


def shared(config: WithListeners) -> ListenerSettings | None:
    """Return the settings of the listener whose TLS and log-ins HTTP shares; None: it is plain."""
    name = config.optional_str("http.security.listener")
    return None if name is None else config.listener(name.upper(), only_asks=True)


def problems(
    config: TypedValues, listeners: Sequence[Endpoint], settings_of: Callable[[str], ListenerSettings]
) -> list[str]:
    """Return what is wrong, a line each; `settings_of` gives the settings of one of the listeners."""
    return [
        *_of_addresses(config.str("http.listener"), config.optional_str("http.advertised.listener")),
        *_of_security(config, listeners, settings_of),
    ]


def is_on_loopback(listener: str) -> bool:
    """Whether only this machine reaches host:port; True for what is no address, which is told by another line."""
    try:
        host, _ = parse_host_port(listener)
    except ValueError:
        return True
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _of_security(
    config: TypedValues, listeners: Sequence[Endpoint], settings_of: Callable[[str], ListenerSettings]
) -> list[str]:
    name = config.optional_str("http.security.listener")
    if name is None:
        listener = config.str("http.listener")
        if is_on_loopback(listener):
            return []
        return [
            "http.listener: off loopback HTTP needs TLS and log-ins: set http.security.listener to a listener with "
            f"SSL or SASL_SSL, or listen on 127.0.0.1 instead of {listener}"
        ]
    with_tls = {e.listener: e for e in listeners if e.protocol in ("SSL", "SASL_SSL")}
    endpoint = with_tls.get(name.upper())
    if endpoint is None:
        known = ", ".join(with_tls) or "there is none"
        return [f"http.security.listener: a listener with SSL or SASL_SSL is expected ({known}), not {name}"]
    found = []
    if config.optional_str("http.token.file") is not None:
        found.append("http.token.file: leave it out: with http.security.listener users log in, and jobs get tokens")
    if endpoint.protocol == "SSL" and settings_of(endpoint.listener).client_auth == "none":
        key = prefixed(endpoint.listener, "ssl.client.auth")
        nobody = f"http.security.listener: nobody can log in to {endpoint.listener}"
        found.append(f"{nobody}: set {key}=required, or name one with SASL")
    return found


def _of_addresses(listener: str, advertised: str | None) -> list[str]:
    """Return what is wrong with the HTTP listener's address and with its advertised one, a line each."""
    try:
        host, _ = parse_host_port(listener)
    except ValueError as error:
        return [f"http.listener: {error}"]
    if advertised is None:
        if not is_unspecified(host):
            return []
        return [
            f"http.listener: others would be told to reach {listener}, which is their own machine: "
            "set http.advertised.listener=HOST:PORT to an address of this one"
        ]
    try:
        told, port = parse_host_port(advertised)
    except ValueError as error:
        return [f"http.advertised.listener: {error}"]
    if is_unspecified(told) or not port:
        return [f"http.advertised.listener: an address and port that others can reach are expected, not {advertised}"]
    return []
