"""AlterClientQuotas (49): sets and removes quotas of users, clients and addresses (KIP-546). Any broker serves it."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from logyard.broker.config.addresses import is_address, is_name
from logyard.broker.config.topic import LONG_MAX
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.metadata.dynamic_configs import DEFAULT_ENTITY
from logyard.broker.security import quota_settings
from logyard.broker.security.quotas import IP_QUOTA
from logyard.broker.server.api import Handler
from logyard.broker.server.config_fields import change_overrides
from logyard.broker.server.handlers.describe_client_quotas import CLIENT_ID, IP, USER
from logyard.broker.server.host_names import is_known
from logyard.broker.server.large_answers import Pauses, parts_of_name
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
from logyard.broker.znodes import configs

# How far a value may be from a whole number where one is needed: the request has doubles only.
EPSILON = 1e-6
# Kafka's brokers, which read the same znodes, hold an address's quota in 32 bits, others in 64.
INT_MAX = 2**31 - 1
# What an entry takes before it is written, in parts of an answer.
ENTRY_PARTS = 5


async def handle(services: Services, request: Request, message: Any) -> Fields:
    pauses = Pauses(services)
    return {
        "entries": [await _alter(services, pauses, entry, bool(message.validate_only)) for entry in message.entries]
    }


async def _alter(services: Services, pauses: Pauses, entry: Any, validate_only: bool) -> Fields:
    code, text = ErrorCode.NONE, None
    # As in Kafka, of a type that is named twice the last name counts.
    entity = {part.entity_type: part.entity_name async for part in pauses.between(entry.entity)}
    await pauses.after(ENTRY_PARTS + sum(parts_of_name(entity.get(kind) or "") for kind in (USER, CLIENT_ID, IP)))
    try:
        kind, name, keys = _place(entity)
        if kind == configs.IPS and (host := entity[IP]) is not None:
            await _check_host(host)
        change = await _change(pauses, entry.ops, keys)
        await change_overrides(
            services.zk,
            kind,
            name,
            change,
            lambda settings: None,
            ErrorCode.INVALID_REQUEST,
            validate_only=validate_only,
        )
    except ApiError as refusal:
        code, text = refusal.code, refusal.message
    named = [{"entity_type": kind, "entity_name": name} async for kind, name in pauses.between(entity.items())]
    return {"error_code": int(code), "error_message": text, "entity": named}


def _answer(entry: Any, code: ErrorCode, text: str | None) -> dict[str, Any]:
    return {"error_code": int(code), "error_message": text, "entity": [_named(part) for part in entry.entity]}


def _named(part: Any) -> Fields:
    return {"entity_type": part.entity_type, "entity_name": part.entity_name}


def _place(entity: Mapping[str, str | None]) -> tuple[str, str, frozenset[str]]:
    """Return kind, name and allowed keys of the znode that has an entity's quotas; a null name means the default."""
    parts: dict[str, str] = {}
    for kind, name in entity.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"entity type {kind!r}: only user, client-id and ip have quotas")
        if name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the name of {kind} is empty")
        parts[kind] = DEFAULT_ENTITY if name is None else configs.sanitize(name)
    if not parts or (IP in parts and len(parts) > 1):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a user, a client-id, both, or an ip is expected")
    if IP not in parts:
        return *quota_settings.path_of(parts.get(USER), parts.get(CLIENT_ID)), quota_settings.CLIENT_KEYS
    return configs.IPS, parts[IP], quota_settings.IP_KEYS


async def _check_host(text: str) -> None:
    """Raise ApiError: INVALID_REQUEST, for what is neither an address nor the name of a host, as in Kafka."""
    if not is_address(text) and not (is_name(text) and await is_known(text)):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{text!r} is not an IP address, nor a host whose name is known")


async def _change(pauses: Pauses, ops: Any, keys: frozenset[str]) -> Callable[[dict[str, str]], dict[str, str]]:
    """Check the operations and return what they do to an entity's settings."""
    last: dict[str, Any] = {}  # of each key the last operation counts
    for op in ops:
        await pauses.after(1)
        if op.key in keys:
            last[op.key] = op
        if op.remove:
            continue  # an unknown key may be removed
        if op.key not in keys:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"{op.key}: the quotas of this entity are {', '.join(sorted(keys))}"
            )
        _text(op)

    def change(settings: dict[str, str]) -> dict[str, str]:
        for op in last.values():
            if op.remove:
                settings.pop(op.key, None)
            else:
                settings[op.key] = _text(op)
        return settings

    return change


def _text(op: Any) -> str:
    """Return a quota as text for the znode. Raises ApiError: INVALID_REQUEST (it is not whole, too large).

    As in Kafka those that need not be whole may be negative.
    """
    value = float(op.value)
    if not math.isfinite(value) or (op.key in quota_settings.WHOLE and value < -EPSILON):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{op.key}: a number of 0 or more is expected, not {value}")
    if op.key not in quota_settings.WHOLE:
        return repr(value)
    most = INT_MAX if op.key == IP_QUOTA else LONG_MAX
    whole = min(int(value + EPSILON), most)  # the double next to LONG_MAX is one more than it
    if abs(float(whole) - value) > EPSILON:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{op.key}: a whole number up to {most} is expected, not {value}")
    return str(whole)


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"entries": [_answer(entry, code, text) for entry in message.entries]}


HANDLER = Handler(message=handle, error=error)
