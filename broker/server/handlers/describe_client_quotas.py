"""DescribeClientQuotas (48): the quotas of users, clients and addresses (KIP-546); v1 is flexible.

They are read from ZooKeeper, so that any broker shows a change as soon as it was answered.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.metadata.dynamic_configs import DEFAULT_ENTITY
from logyard.broker.security import quota_settings
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
from logyard.broker.znodes import configs

USER, CLIENT_ID, IP = TYPES = "user", "client-id", "ip"
EXACT, DEFAULT, ANY = range(3)
# What an entity takes to be read, in parts of an answer.
ENTITY_PARTS = 10

Entity = dict[str, str]  # names by type; <default> is the default


async def handle(services: Services, request: Request, message: Any) -> Fields:
    asked = _asked(message.components, bool(message.strict))
    pauses, entries = Pauses(services), []
    async for found, quotas in _all(services, asked):
        await pauses.after(ENTITY_PARTS)
        if quotas and asked.matches(found):
            named = [
                {"entity_type": kind, "entity_name": None if name == DEFAULT_ENTITY else name}
                for kind, name in found.items()
            ]
            values = [{"key": key, "value": value} for key, value in quotas.items()]
            entries.append({"entity": named, "values": values})
    return {"error_code": 0, "entries": entries}


@dataclass(frozen=True, slots=True)
class Asked:
    """The filter: its components by type. Without `strict` entities may have more types than it names."""

    components: Mapping[str, Any]
    strict: bool

    def matches(self, entity: Entity) -> bool:
        """Whether the filter takes an entity."""
        if self.strict and entity.keys() != self.components.keys():
            return False
        return all(kind in entity and _is_meant(each, entity[kind]) for kind, each in self.components.items())

    def one(self, kind: str) -> str | None:
        """Return the only name of that type that is asked for, as in the path of its znode; None: there may be more."""
        component = self.components.get(kind)
        if component is None or component.match_type == ANY:
            return None
        return configs.DEFAULT if component.match_type == DEFAULT else configs.sanitize(component.match)

    def may_have(self, *kinds: str) -> bool:
        """Whether an entity of exactly these types can match."""
        if self.strict:
            return self.components.keys() == set(kinds)
        return self.components.keys() <= set(kinds)


def _asked(components: Any, strict: bool) -> Asked:
    wanted: dict[str, Any] = {}
    # Of more than there are types one is refused below: a client may name a million.
    for component in components[: len(TYPES) + 1]:
        kind = component.match_type
        if kind not in (EXACT, DEFAULT, ANY) or (kind == EXACT and component.match is None):
            text = "no name to match" if kind == EXACT else f"match type {kind} is not 0 to 2"
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, text)  # Kafka's code for it, before those below
    for component in components:
        kind = component.entity_type
        if kind == "" or kind in wanted:
            problem = f"{kind} is named more than once" if kind else "a component without an entity type"
            raise ApiError(ErrorCode.INVALID_REQUEST, problem)
        if kind not in TYPES:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION, f"entity type {kind}: only user, client-id and ip have quotas"
            )
        wanted[kind] = component
    if IP in wanted and len(wanted) > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "ip cannot be asked for together with user or client-id")
    return Asked(wanted, strict)


def _is_meant(component: Any, name: str) -> bool:
    if component.match_type == EXACT:
        return bool(name == component.match) and name != DEFAULT_ENTITY
    return component.match_type == ANY or name == DEFAULT_ENTITY


async def _all(services: Services, asked: Asked) -> AsyncIterator[tuple[Entity, dict[str, float]]]:
    """Yield each entity that has a znode and can match, with its quotas.

    As in Kafka, only these znodes are read: one that may not be read does not fail a question about another.
    """
    named = await _named(services, asked)
    paths = [configs.path(kind, name) for kind, name in named]
    for (kind, name), path, znode in zip(named, paths, await services.zk.read(paths), strict=True):
        if znode is None:
            continue
        try:
            settings = configs.decode(znode.data, path)
        except CorruptData:
            continue  # the config watcher has logged it
        yield entity(kind, name), dict(_quotas(kind, settings))


async def _named(services: Services, asked: Asked) -> list[tuple[str, str]]:
    """Return kind and name of the znodes of all entities that can match."""
    user, client, ip = asked.one(USER), asked.one(CLIENT_ID), asked.one(IP)

    async def of_kind(kind: str, only: str | None) -> list[str]:
        if only is not None:
            return _possible(only)
        (names,) = await services.zk.children([configs.type_path(kind)])
        return names or []

    named: list[tuple[str, str]] = []
    of_users, of_both = asked.may_have(USER), asked.may_have(USER, CLIENT_ID)
    users = await of_kind(configs.USERS, user) if of_users or of_both else []
    if of_users:
        named += [(configs.USERS, name) for name in users]
    if asked.may_have(CLIENT_ID):
        named += [(configs.CLIENTS, name) for name in await of_kind(configs.CLIENTS, client)]
    if asked.may_have(IP):
        named += [(configs.IPS, name) for name in await of_kind(configs.IPS, ip)]
    if of_both:
        folders = [configs.path(configs.USERS, f"{name}/clients") for name in users]
        found = await services.zk.children(folders) if client is None else [_possible(client)] * len(users)
        pairs = zip(users, found, strict=True)
        named += [(configs.USERS, f"{name}/clients/{each}") for name, names in pairs for each in names or ()]
    return named


def _possible(name: str) -> list[str]:
    """Return the name, if a znode can have it."""
    return [name] if 0 < len(name) < configs.PATH_BYTES_MAX else []


def _quotas(kind: str, settings: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    keys = quota_settings.IP_KEYS if kind == configs.IPS else quota_settings.CLIENT_KEYS
    return quota_settings.quotas_in(settings, keys)


def entity(kind: str, name: str) -> Entity:
    """Return the names in a znode's path by type."""
    if kind == configs.IPS:
        return {IP: name if name == DEFAULT_ENTITY else configs.desanitize(name)}
    user, client_id = quota_settings.entity_of(kind, name)
    return {key: value for key, value in ((USER, user), (CLIENT_ID, client_id)) if value is not None}


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"error_code": int(code), "error_message": text, "entries": None}


HANDLER = Handler(message=handle, error=error)
