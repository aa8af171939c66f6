"""IncrementalAlterConfigs (44): sets, deletes, appends to and subtracts from single overrides (KIP-339)."""

from functools import partial
from typing import Any

from logyard.broker.config.topic_keys import TOPIC_KEYS
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.server.api import Handler
from logyard.broker.server.config_fields import APPEND, DELETE, SET, SUBTRACT
from logyard.broker.server.handlers import alter_configs
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    changes = partial(_change, services)
    return {"responses": await alter_configs.alter_all(services, request, message, _check, changes)}


def _check(resource: Any) -> None:
    alter_configs.check_settings(resource, (c for c in resource.configs if c.config_operation != DELETE))


def _change(services: Services, resource: Any) -> alter_configs.Change:
    def change(overrides: dict[str, str]) -> dict[str, str]:
        for asked in resource.configs:
            _apply(services, overrides, asked)
        return overrides

    return change


def _apply(services: Services, overrides: dict[str, str], asked: Any) -> None:
    operation, name = asked.config_operation, asked.name
    if operation == DELETE:
        overrides.pop(name, None)
        return
    if operation == SET:
        overrides[name] = asked.value
    elif operation in (APPEND, SUBTRACT):
        default = _default(services, name)
        present = _list(overrides.get(name, default))
        given = _list(asked.value)
        there, named = set(present), set(given)
        kept = [item for item in present if item not in named]
        overrides[name] = ",".join([*present, *(i for i in given if i not in there)] if operation == APPEND else kept)
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name}: operation {operation} is not 0 to 3")


def _list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _default(services: Services, name: str) -> str:
    """Return the value of a list that has no override. Raises ApiError: INVALID_CONFIG (it is not a list)."""
    entries = services.config.describe_topic({}) if name in TOPIC_KEYS else services.config.describe()
    entry = next((e for e in entries if e.name == name), None)
    if entry is None or entry.type.name != "LIST":
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{name}: only a list can be appended to or subtracted from")
    return entry.value or ""


HANDLER = Handler(message=handle, error=alter_configs.error)
