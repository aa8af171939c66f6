"""Quotas as /config holds them: read off the znodes of users, clients and addresses, and described to admin clients.

An entity's name in the path is URL-encoded, `<default>` stands for everyone without settings of their own, and
`U/clients/C` below users is one user's client (KIP-55, KIP-257, KIP-612; facts §1).
"""

import math
from collections.abc import Iterator, Mapping

from logyard.broker.errors import CorruptData
from logyard.broker.metadata.dynamic_configs import DEFAULT_ENTITY, DynamicConfigs, QuotaEntity
from logyard.broker.security.quotas import IP_QUOTA, QuotaKey
from logyard.broker.znodes import configs

CLIENT_KEYS = frozenset(str(key) for key in QuotaKey)
IP_KEYS = frozenset({IP_QUOTA})
# Whole numbers in Kafka's own table of types; the percentage and the mutation rate are not.
WHOLE = frozenset({QuotaKey.PRODUCE, QuotaKey.FETCH, IP_QUOTA})
_BETWEEN = "/clients/"


def changed(known: DynamicConfigs, kind: str, name: str, settings: Mapping[str, str]) -> None:
    """Take over the quotas among the settings of a user, client or address; raises CorruptData for no number."""
    if kind == configs.IPS:
        ip = name if name == DEFAULT_ENTITY else configs.desanitize(name)
        known.set_ip_quota(ip, _numbers(settings, IP_KEYS, f"{kind}/{name}"))
        return
    user, client_id = entity_of(kind, name)
    known.set_quota(user, client_id, _numbers(settings, CLIENT_KEYS, f"{kind}/{name}"))


def entity_of(kind: str, name: str) -> QuotaEntity:
    """(user, client id) of an entity of `users` or `clients`; None where it is of any."""
    if kind == configs.CLIENTS:
        return None, _plain(name)
    user, between, client = name.partition(_BETWEEN)
    return _plain(user), _plain(client) if between else None


def path_of(user: str | None, client_id: str | None) -> tuple[str, str]:
    """(kind, name) of the entity, as in the path; one of the two is not None. The names are plain."""
    if user is None:
        assert client_id is not None, "an entity is a user, a client or both"
        return configs.CLIENTS, _sanitized(client_id)
    if client_id is None:
        return configs.USERS, _sanitized(user)
    return configs.USERS, _sanitized(user) + _BETWEEN + _sanitized(client_id)


def number(text: str) -> float | None:
    """Read a quota's bound; None where it is no number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else value


def quotas_in(settings: Mapping[str, str], keys: frozenset[str]) -> Iterator[tuple[str, float]]:
    """The quotas among an entity's settings: the same znode holds a user's credentials too."""
    for key, text in settings.items():
        if key in keys and (value := number(text)) is not None:
            yield key, value


def _numbers(settings: Mapping[str, str], keys: frozenset[str], where: str) -> dict[str, str]:
    wrong = [f"{key}={text}" for key, text in settings.items() if key in keys and number(text) is None]
    if wrong:
        raise CorruptData(f"{where}: {', '.join(wrong)} is no number")
    return {key: text for key, text in settings.items() if key in keys}


def _plain(name: str) -> str:
    return name if name == DEFAULT_ENTITY else configs.desanitize(name)


def _sanitized(name: str) -> str:
    return name if name == DEFAULT_ENTITY else configs.sanitize(name)
