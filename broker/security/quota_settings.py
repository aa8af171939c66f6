"""The quotas in the znodes of users, clients and addresses below /config.

An entity's name in the path is URL-encoded; `<default>` is for those without settings of their own; `U/clients/C` below
users is a user's client (KIP-55, KIP-257, KIP-612; facts §1).
"""

import math
from collections.abc import Iterator, Mapping

from logyard.broker.config.addresses import canonical, is_address
from logyard.broker.errors import CorruptData
from logyard.broker.metadata.dynamic_configs import DEFAULT_ENTITY, DynamicConfigs, QuotaEntity
from logyard.broker.security.quotas import IP_QUOTA, QuotaKey
from logyard.broker.znodes import configs

# In this order Kafka's broker has them in its answers, and its tool prints them (the buckets of Java's Properties).
ORDER = (QuotaKey.REQUEST, QuotaKey.PRODUCE, QuotaKey.FETCH, QuotaKey.MUTATION, IP_QUOTA)
CLIENT_KEYS = frozenset(str(key) for key in QuotaKey)
IP_KEYS = frozenset({IP_QUOTA})
# Quotas that must be whole numbers, as in Kafka; the percentage and the mutation rate may be fractions.
WHOLE = frozenset({QuotaKey.PRODUCE, QuotaKey.FETCH, IP_QUOTA})
_BETWEEN = "/clients/"


def changed(known: DynamicConfigs, kind: str, name: str, settings: Mapping[str, str]) -> None:
    """Apply the quotas in the settings of a user, client or address. Raises CorruptData if one is not a number."""
    if kind == configs.IPS:
        ip = name if name == DEFAULT_ENTITY else canonical(configs.desanitize(name))
        known.set_ip_quota(ip, _numbers(settings, IP_KEYS, f"{kind}/{name}"))
        return
    user, client_id = entity_of(kind, name)
    known.set_quota(user, client_id, _numbers(settings, CLIENT_KEYS, f"{kind}/{name}"))


def host_of(kind: str, name: str) -> str | None:
    """Return the host name that an entity of `ips` is called by; None for an address, the default, and other kinds."""
    host = canonical(configs.desanitize(name)) if kind == configs.IPS and name != DEFAULT_ENTITY else ""
    return None if not host or is_address(host) else host


def entity_of(kind: str, name: str) -> QuotaEntity:
    """Return (user, client id) of an entity of `users` or `clients`; None: any."""
    if kind == configs.CLIENTS:
        return None, _plain(name)
    user, between, client = name.partition(_BETWEEN)
    return _plain(user), _plain(client) if between else None


def path_of(user: str | None, client_id: str | None) -> tuple[str, str]:
    """Return (kind, name) of an entity, as in the path. At least one argument is not None.

    Names are encoded (`configs.sanitize`) or `<default>`: a user who is called `<default>` is another entity.
    """
    if user is None:
        assert client_id is not None, "an entity is a user, a client or both"
        return configs.CLIENTS, client_id
    if client_id is None:
        return configs.USERS, user
    return configs.USERS, user + _BETWEEN + client_id


def number(text: str) -> float | None:
    """Parse a quota's value; None if it is not a number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else value


def quotas_in(settings: Mapping[str, str], keys: frozenset[str]) -> Iterator[tuple[str, float]]:
    """Yield the quotas in an entity's settings, in Kafka's order; the znode has a user's credentials too."""
    for key in ORDER:
        if key in keys and key in settings and (value := number(settings[key])) is not None:
            yield str(key), value


def _numbers(settings: Mapping[str, str], keys: frozenset[str], where: str) -> dict[str, str]:
    wrong = [f"{key}={text}" for key, text in settings.items() if key in keys and number(text) is None]
    if wrong:
        raise CorruptData(f"{where}: {', '.join(wrong)} is not a number")
    return {key: text for key, text in settings.items() if key in keys}


def _plain(name: str) -> str:
    """Return a name as clients have it; one that is called as the default entity is stays encoded."""
    plain = configs.desanitize(name)
    return name if plain == DEFAULT_ENTITY else plain
