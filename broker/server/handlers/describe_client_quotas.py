"""DescribeClientQuotas (48): the quotas of users, clients and addresses (KIP-546); v1 is flexible.

They are read from ZooKeeper, so that any broker shows a change as soon as it was answered.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.metadata.dynamic_configs import DEFAULT_ENTITY
from logyard.broker.security import quota_settings
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
from logyard.broker.znodes import configs

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT, ANY = range(3)
# What an entity takes to be read, in parts of an answer.
ENTITY_PARTS = 10

Entity = dict[str, str]  # names by type; <default> is the default
Matches = Callable[[Entity], bool]


async def handle(services: Services, request: Request, message: Any) -> Fields:
    matches = _matcher(message.components, bool(message.strict))
    pauses, entries = Pauses(services), []
    async for found, quotas in _all(services):
        await pauses.after(ENTITY_PARTS)
        if quotas and matches(found):
            named = [
                {"entity_type": kind, "entity_name": None if name == DEFAULT_ENTITY else name}
                for kind, name in found.items()
            ]
            values = [{"key": key, "value": value} for key, value in quotas.items()]
            entries.append({"entity": named, "values": values})
    return {"error_code": 0, "entries": entries}


def _matcher(components: Any, strict: bool) -> Matches:
    """Return the filter as a function. Without `strict` entities may have more types than the filter names."""
    wanted: dict[str, Any] = {}
    for component in components:
        kind = component.entity_type
        if kind == "" or kind in wanted:
            problem = f"{kind} is named more than once" if kind else "a component without an entity type"
            raise ApiError(ErrorCode.INVALID_REQUEST, problem)
        if kind not in (USER, CLIENT_ID, IP):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION, f"entity type {kind}: only user, client-id and ip have quotas"
            )
        if component.match_type not in (EXACT, DEFAULT, ANY):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"match type {component.match_type} is not 0 to 2")
        wanted[kind] = component
    if IP in wanted and len(wanted) > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "ip cannot be asked for together with user or client-id")

    def matches(entity: Entity) -> bool:
        if strict and entity.keys() != wanted.keys():
            return False
        return all(kind in entity and _is_meant(component, entity[kind]) for kind, component in wanted.items())

    return matches


def _is_meant(component: Any, name: str) -> bool:
    if component.match_type == EXACT:
        return bool(name == component.match) and name != DEFAULT_ENTITY
    return component.match_type == ANY or name == DEFAULT_ENTITY


async def _all(services: Services) -> Any:
    """Yield each entity that has a znode, with its quotas."""
    kinds = (configs.USERS, configs.CLIENTS, configs.IPS)
    children = await services.zk.children([configs.type_path(kind) for kind in kinds])
    named = [(kind, name) for kind, names in zip(kinds, children, strict=True) for name in names or ()]
    users = [name for kind, name in named if kind == configs.USERS]
    clients = await services.zk.children([configs.path(configs.USERS, f"{user}/clients") for user in users])
    named += [
        (configs.USERS, f"{user}/clients/{client}")
        for user, names in zip(users, clients, strict=True)
        for client in names or ()
    ]
    paths = [configs.path(kind, name) for kind, name in named]
    for (kind, name), path, znode in zip(named, paths, await services.zk.read(paths), strict=True):
        if znode is None:
            continue
        try:
            settings = configs.decode(znode.data, path)
        except CorruptData:
            continue  # the config watcher has logged it
        yield entity(kind, name), dict(_quotas(kind, settings))


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
