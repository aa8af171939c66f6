"""A key as DescribeConfigs answers it: its value, where the value comes from, and what else could give it."""

from dataclasses import dataclass
from enum import IntEnum

from logyard.broker.config.key_types import ConfigType


class ConfigSource(IntEnum):
    """Where a value comes from, numbered as on the wire (DescribeConfigs)."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One of the places a value could have come from; the first of a list is the one in force."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key as DescribeConfigs answers it; `value` is None if the key is not set or is sensitive."""

    name: str
    value: str | None
    source: ConfigSource
    sensitive: bool
    read_only: bool
    synonyms: tuple[ConfigSynonym, ...]
    type: ConfigType
    doc: str
