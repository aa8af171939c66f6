"""Settings that one listener may have for itself: `listener.name.<its name in lower case>.<key>`.

A setting that a listener does not have comes from the broker (Kafka's valuesWithPrefixOverride). Kafka's settings of
TLS and SASL per listener do not act here.
"""

import re
from collections.abc import Iterable, Mapping

from logyard.broker.config.key_types import ConfigType, Key, at_least
from logyard.broker.config.keys import KEYS
from logyard.broker.model import Endpoint

_PREFIXED = re.compile(r"listener\.name\.([^.]*)\.(.+)")

# Kafka allows 0 for a broker, but not for a listener.
_OF_LISTENERS = {
    "max.connections": at_least(1),
    "max.connection.creation.rate": at_least(1),
}


def prefixed(listener: str, key: str) -> str:
    """Return the name of a listener's own setting."""
    return f"listener.name.{listener.lower()}.{key}"


def base_of(name: str) -> str | None:
    """Return the broker's key behind a listener's setting, whether it acts or not; None for any other name."""
    match = _PREFIXED.fullmatch(name)
    return match[2] if match else None


def is_of_listener(name: str) -> bool:
    """Whether this is a listener's setting that acts."""
    return base_of(name) in _OF_LISTENERS


def key_of(name: str) -> Key | None:
    """Return the key of that name, a broker's or a listener's; None if it is unknown."""
    base = base_of(name)
    if base is None or base not in _OF_LISTENERS:
        return KEYS.get(name)
    return Key(name, ConfigType.INT, None, _OF_LISTENERS[base])


def of_unknown_listeners(names: Iterable[str], listeners: Iterable[Endpoint]) -> list[str]:
    """Return a line for each setting of a listener that does not exist."""
    known = {endpoint.listener.lower() for endpoint in listeners}
    return [
        f"{name}: no listener is called {match[1]!r} (listeners: {', '.join(sorted(known))}, in lower case)"
        for name in names
        if (match := _PREFIXED.fullmatch(name)) and match[2] in _OF_LISTENERS and match[1] not in known
    ]


def given_of(given: Mapping[str, object]) -> list[str]:
    """Return the names of listeners' settings among the given keys."""
    return [name for name in given if is_of_listener(name)]
