"""The resource BROKER_LOGGER of DescribeConfigs and IncrementalAlterConfigs (KIP-412): the levels of this broker's
loggers. The errors are those of Kafka's RuntimeLoggerManager and ConfigHelper."""

from typing import Any

import structlog

from logyard.broker.config.entries import ConfigEntry, ConfigSource
from logyard.broker.config.key_types import ConfigType
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.log_levels import LEVELS, LOGGERS, ROOT
from logyard.broker.server.config_fields import DELETE, SET, meant_for_another
from logyard.broker.server.services import Services

log = structlog.get_logger("logyard.services")


def described_levels(services: Services, name: str) -> list[ConfigEntry]:
    """Return the loggers with their levels. Raises ApiError: INVALID_REQUEST, if `name` is not this broker's id."""
    _require_this_broker(services, name)
    return [
        ConfigEntry(
            logger,
            services.log_levels.level(logger),
            ConfigSource.DYNAMIC_BROKER_LOGGER,
            sensitive=False,
            read_only=False,
            synonyms=(),
            type=ConfigType.UNKNOWN,
            doc=what,
        )
        for logger, what in LOGGERS.items()
    ]


def alter_levels(services: Services, resource: Any, *, validate_only: bool) -> None:
    """Set and remove levels: all that the resource names, or none.

    Raises ApiError: INVALID_REQUEST (another broker, another operation, `root` cannot be without a level),
    INVALID_CONFIG (no such logger or level).
    """
    _require_this_broker(services, resource.resource_name)
    for asked in resource.configs:
        _check(asked)
    if validate_only:
        return
    for asked in resource.configs:
        if asked.config_operation == SET:
            log.warning("level of a logger set", of=asked.name, to=asked.value)
            services.log_levels.set(asked.name, asked.value)
        else:
            log.warning("level of a logger removed", of=asked.name)
            services.log_levels.unset(asked.name)


def _check(asked: Any) -> None:
    if asked.config_operation not in (SET, DELETE):
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{asked.name}: a level can be set and deleted, not appended to or subtracted"
        )
    if asked.name not in LOGGERS:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Logger {asked.name} does not exist!")
    if asked.config_operation == SET and asked.value not in LEVELS:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {asked.name} to {asked.value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(LEVELS))}",
        )
    if asked.config_operation == DELETE and asked.name == ROOT:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed")


def _require_this_broker(services: Services, name: str) -> None:
    try:
        is_this = int(name) == services.broker_id
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a broker's id is needed, not {name!r}") from None
    if not is_this:
        raise meant_for_another(services.broker_id, name)
