"""Settings that one listener may have for itself: `listener.name.<its name in lower case>.<key>`.

They are those of TLS and SASL and two limits. A setting of SASL may be given for one mechanism of a listener too:
`listener.name.<listener>.<mechanism in lower case>.<key>` (facts §18.1). listener_settings.py reads them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from logyard.broker.config.acted_on import ACTED_ON
from logyard.broker.config.key_types import ConfigType, Key, at_least
from logyard.broker.config.keys import KEYS
from logyard.broker.config.security_keys import SECURITY_KEYS
from logyard.broker.model import Endpoint

_PREFIXED = re.compile(r"listener\.name\.([^.]*)\.(.+)")

# Kafka allows 0 for a broker, but not for a listener.
_LIMITS = {
    "max.connections": at_least(1),
    "max.connection.creation.rate": at_least(1),
}
_REAUTHENTICATION = "connections.max.reauth.ms"
_SECURITY = frozenset(
    key.name
    for key in SECURITY_KEYS
    if key.name.startswith(("ssl.", "sasl.")) or key.name in ("principal.builder.class", _REAUTHENTICATION)
)
# Of brokers only; `sasl.mechanism.inter.broker.protocol` is that of the listener between brokers.
_OF_LISTENERS = (_SECURITY - {"sasl.mechanism.controller.protocol"}) | _LIMITS.keys()
_OF_MECHANISMS = frozenset(name for name in _SECURITY if name.startswith("sasl.")) | {_REAUTHENTICATION}


def prefixed(listener: str, key: str) -> str:
    """Return the name of a listener's own setting."""
    return f"listener.name.{listener.lower()}.{key}"


def of_mechanism(listener: str, mechanism: str, key: str) -> str:
    """Return the name of a setting of one SASL mechanism of a listener."""
    return prefixed(listener, f"{mechanism.lower()}.{key}")


def base_of(name: str) -> str | None:
    """Return the broker's key behind a listener's or mechanism's setting, whether it acts or not; None for others."""
    match = _PREFIXED.fullmatch(name)
    if match is None:
        return None
    base = match[2]
    _, dot, rest = base.partition(".")
    return rest if base not in KEYS and dot and rest in _OF_MECHANISMS else base


def is_of_listener(name: str) -> bool:
    """Whether this is a listener's setting that acts."""
    base = base_of(name)
    return base in _OF_LISTENERS and base in ACTED_ON


def is_security_of_listener(name: str) -> bool:
    """Whether this is a listener's setting of TLS or SASL that acts."""
    return is_of_listener(name) and base_of(name) in _SECURITY


def key_of(name: str) -> Key | None:
    """Return the key of that name, a broker's or a listener's; None if it is unknown."""
    base = base_of(name)
    if base is None or base not in _OF_LISTENERS:
        return KEYS.get(name)
    if base in _LIMITS:
        return Key(name, ConfigType.INT, None, _LIMITS[base])
    return replace(KEYS[base], name=name, default=None)


def of_unknown_listeners(names: Iterable[str], listeners: Iterable[Endpoint]) -> list[str]:
    """Return a line for each setting of a listener that does not exist."""
    known = {endpoint.listener.lower() for endpoint in listeners}
    return [
        f"{name}: no listener is called {match[1]!r} (listeners: {', '.join(sorted(known))}, in lower case)"
        for name in names
        if (match := _PREFIXED.fullmatch(name)) and is_of_listener(name) and match[1] not in known
    ]


def given_of(given: Mapping[str, object]) -> list[str]:
    """Return the names of listeners' settings among the given keys."""
    return [name for name in given if is_of_listener(name)]
