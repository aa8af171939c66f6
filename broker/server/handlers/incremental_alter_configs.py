"""IncrementalAlterConfigs (44): sets, deletes, appends to and subtracts from single overrides (KIP-339)."""

from typing import Any

from logyard.broker.config.topic_keys import TOPIC_KEYS
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.server.api import Handler
from logyard.broker.server.handlers import alter_configs
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services

SET, DELETE, APPEND, SUBTRACT = range(4)


async def handle(services: Services, request: Request, message: Any) -> Fields:
    responses = []
    for resource in message.resources:
        change = _change(services, resource)
        responses.append(await alter_configs.alter(services, resource, change, bool(message.validate_only)))
    return {"responses": responses}


def _change(services: Services, resource: Any) -> alter_configs.Change:
    def change(overrides: dict[str, str]) -> dict[str, str]:
        named = [c.name for c in resource.configs]
        twice = sorted({name for name in named if named.count(name) > 1})
        if twice:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{', '.join(twice)}: named more than once")
        for asked in resource.configs:
            _apply(services, overrides, asked)
        return overrides

    return change


def _apply(services: Services, overrides: dict[str, str], asked: Any) -> None:
    operation, name = asked.config_operation, asked.name
    if operation == DELETE:
        overrides.pop(name, None)
        return
    if asked.value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name}: a value is needed")
    if operation == SET:
        overrides[name] = asked.value
    elif operation in (APPEND, SUBTRACT):
        present = _list(overrides.get(name) or _default(services, name))
        given = _list(asked.value)
        kept = [item for item in present if item not in given]
        overrides[name] = ",".join([*present, *(i for i in given if i not in present)] if operation == APPEND else kept)
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name}: operation {operation} is not 0 to 3")


def _list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _default(services: Services, name: str) -> str:
    """Return the current value of a list that has no override. Raises ApiError: INVALID_REQUEST (it is not a list)."""
    entries = services.config.describe_topic({}) if name in TOPIC_KEYS else services.config.describe()
    entry = next((e for e in entries if e.name == name), None)
    if entry is None or entry.type.name != "LIST":
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name}: only a list can be appended to or subtracted from")
    return entry.value or ""


HANDLER = Handler(message=handle, error=alter_configs.error)
