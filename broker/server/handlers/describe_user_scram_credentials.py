"""DescribeUserScramCredentials (50): which SCRAM credentials users have (KIP-554). Any broker serves it.

Only mechanism and iterations are answered, never a salt or a key. Credentials are read from ZooKeeper, so that any
broker shows a change as soon as it was answered. A named user whose znode may not be read has an error of its own. If
all are asked for, it fails the request, as in Kafka. Rights: Describe on the cluster (facts §18.1, §18.5).
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from logyard.broker.errors import CorruptData, ErrorCode, LogyardError, fitting
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import PARTS_AT_ONCE, Pauses, parts_of_name
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
from logyard.broker.znodes import configs
from logyard.broker.znodes.reading import read_each
from logyard.broker.znodes.scram_credentials import MECHANISMS, ScramCredential

Found = Mapping[str, str] | LogyardError
"""A user's settings, or why they cannot be read."""


async def handle(services: Services, request: Request, message: Any) -> Fields:
    results = await (_of_named(services, message.users) if message.users else _of_all(services))
    return {"error_code": 0, "error_message": None, "results": results}


async def _of_all(services: Services) -> list[Fields]:
    """Return the users who have credentials, sorted."""
    (children,) = await services.zk.children([configs.type_path(configs.USERS)])
    users = sorted(configs.desanitize(name) for name in children or () if name != configs.DEFAULT)
    results = []
    async for user, found in _settings(services, users):
        if isinstance(found, LogyardError) and not isinstance(found, CorruptData):
            raise found
        if _has_any(found):
            results.append(_result(user, found))
    return results


async def _of_named(services: Services, named: Sequence[Any]) -> list[Fields]:
    """Return one result for each user, in the order of the request."""
    pauses = Pauses(services)
    times = await pauses.counted(user.name for user in named)
    once = []
    for user, count in times.items():
        await pauses.after(parts_of_name(user))
        if count == 1 and _may_be_there(user):
            once.append(user)
    results: dict[str, Fields] = {user: {} for user in times}
    async for user, found in _settings(services, once):
        if _has_any(found):
            results[user] = _result(user, found)
        else:
            results[user] = _unknown(user)
    async for user, count in pauses.between(times.items()):
        if not user:
            results[user] = _refused(user, ErrorCode.RESOURCE_NOT_FOUND, "Username must not be empty")
        elif count > 1:
            text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
            results[user] = _refused(user, ErrorCode.DUPLICATE_RESOURCE, text)
        elif not results[user]:
            results[user] = _unknown(user)
    return list(results.values())


def _may_be_there(user: str) -> bool:
    return bool(user) and len(configs.sanitize(user)) < configs.PATH_BYTES_MAX


def _unknown(user: str) -> Fields:
    text = f"Attempt to describe a user credential that does not exist: {user}"
    return _refused(user, ErrorCode.RESOURCE_NOT_FOUND, text)


async def _settings(services: Services, users: Sequence[str]) -> AsyncIterator[tuple[str, Found]]:
    """Yield what is found of each user; others have their turns between portions of users."""
    pauses = Pauses(services)
    for start in range(0, len(users), PARTS_AT_ONCE):
        portion = users[start : start + PARTS_AT_ONCE]
        paths = []
        for user in portion:
            await pauses.after(parts_of_name(user))
            paths.append(configs.path(configs.USERS, configs.sanitize(user)))
        await services.turns.next()
        for user, path, znode in zip(portion, paths, await read_each(services.zk, paths), strict=True):
            try:
                if isinstance(znode, LogyardError):
                    raise znode
                yield user, {} if znode is None else configs.decode(znode.data, path)
            except LogyardError as problem:
                yield user, problem


def _has_any(found: Found) -> bool:
    return isinstance(found, LogyardError) or any(name in found for name in MECHANISMS.values())


def _result(user: str, found: Found) -> Fields:
    try:
        if isinstance(found, LogyardError):
            raise found
        infos = [
            {"mechanism": number, "iterations": ScramCredential.parse(found[name]).iterations}
            for number, name in MECHANISMS.items()
            if name in found
        ]
    except LogyardError as problem:
        return _refused(user, ErrorCode.UNKNOWN_SERVER_ERROR, str(problem))
    return {"user": user, "error_code": 0, "error_message": None, "credential_infos": infos}


def _refused(user: str, code: ErrorCode, text: str) -> dict[str, Any]:
    return {"user": user, "error_code": int(code), "error_message": fitting(text), "credential_infos": []}


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"error_code": int(code), "error_message": text, "results": []}


HANDLER = Handler(message=handle, error=error)
