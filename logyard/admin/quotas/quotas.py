"""Quotas of users, clients, both, and addresses: which keys, which values, kafka-configs' words. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from logyard.admin.configs.entities import CLIENTS, DEFAULT, IP_QUOTAS, IPS, QUOTAS, USERS, BadConfig, Entity

KEYS = (*QUOTAS, *IP_QUOTAS)


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of one entity: key → bytes per second, percent, mutations or connections per second."""

    entity: Entity
    values: Mapping[str, float]


def entity_of(user: str | None = None, client: str | None = None, ip: str | None = None) -> Entity:
    """The entity with these names; "" is the default of its type. Raises BadConfig for none, or an address with
    others."""
    if ip is not None and (user is not None or client is not None):
        raise BadConfig("a quota of an address is for the address alone: leave out user and client")
    given = {USERS: user, CLIENTS: client, IPS: ip}
    named = {kind: name for kind, name in given.items() if name is not None}
    if not named:
        raise BadConfig("name a user, a client, both, or an address")
    return Entity(tuple(named), tuple(named.values()))


def check(entity: Entity, values: Mapping[str, float]) -> dict[str, float]:
    """The values, if the entity can have them. Raises BadConfig."""
    allowed = IP_QUOTAS if entity.type == IPS else QUOTAS
    for key, value in values.items():
        if key not in allowed:
            raise BadConfig(f"quota {key!r} of {spoken(entity)}: one of {', '.join(allowed)} is expected")
        if not 0 < value < float("inf"):
            raise BadConfig(f"quota {key} of {spoken(entity)}: a number above 0 is expected, {value:g} is given")
    return dict(values)


def parse(given: Mapping[str, object], where: str = "a quota") -> Quota:
    """A quota of a mapping as people write it: user, client or ip, and limits. Raises BadConfig."""
    names = {key: str(given[key]) for key in ("user", "client", "ip") if given.get(key) is not None}
    entity = entity_of(**names)
    values: dict[str, float] = {}
    for key, value in given.items():
        if key in names or value is None:
            continue
        try:
            values[key] = float(str(value))
        except ValueError:
            raise BadConfig(f"{where}: {key} {value!r}: a number is expected") from None
    return Quota(entity, check(entity, values))


def unset(given: Mapping[str, object], where: str = "a quota") -> list[str]:
    """The limits that a mapping for `parse` sets to null: those are to be removed. Raises BadConfig."""
    keys = [key for key, value in given.items() if value is None and key not in ("user", "client", "ip")]
    strange = [key for key in keys if key not in KEYS]
    if strange:
        raise BadConfig(f"{where}: {strange[0]!r} is not one of {', '.join(KEYS)}")
    return keys


def spoken(entity: Entity) -> str:
    names = zip(entity.types, entity.names or (), strict=True)
    return ", ".join(f"{kind[:-1]} {name}" if name != DEFAULT else f"the default {kind[:-1]}" for kind, name in names)
