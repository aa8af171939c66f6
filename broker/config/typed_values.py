"""Typed access to configuration values by key: `config.int("num.partitions")`."""

import builtins
from collections.abc import Mapping
from typing import TypeVar

from logyard.broker.config.key_types import ConfigValue
from logyard.broker.errors import LogyardError

T = TypeVar("T")


class TypedValues:
    """Getters named for the type. They raise KeyError for an unknown key, LogyardError for one that is not set."""

    # Inside this class `int`, `str`… name the getters, hence builtins.

    def __init__(self, values: Mapping[builtins.str, ConfigValue]) -> None:
        self._values = values

    def value(self, key: builtins.str) -> ConfigValue:
        """Return a value of whatever type, None if it is not set."""
        return self._values[key]

    def int(self, key: builtins.str) -> builtins.int:
        return self._get(key, builtins.int)

    def float(self, key: builtins.str) -> builtins.float:
        value = self._values[key]
        return builtins.float(value) if isinstance(value, builtins.int) else self._get(key, builtins.float)

    def bool(self, key: builtins.str) -> builtins.bool:
        return self._get(key, builtins.bool)

    def str(self, key: builtins.str) -> builtins.str:
        return self._get(key, builtins.str)

    def list(self, key: builtins.str) -> tuple[builtins.str, ...]:
        return self._get(key, tuple)

    def optional_str(self, key: builtins.str) -> builtins.str | None:
        return None if self._values[key] is None else self._get(key, builtins.str)

    def _get(self, key: builtins.str, kind: type[T]) -> T:
        value = self._values[key]
        if not isinstance(value, kind):
            raise LogyardError(f"{key}: not set, or not of type {kind.__name__}")
        return value
