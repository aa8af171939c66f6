"""What a configuration key is: its type, its default, what is allowed, and how its text is read and written."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

ConfigValue = bool | int | float | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308


class ConfigType(IntEnum):
    """Kafka's types, numbered as DescribeConfigs answers them (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


@dataclass(frozen=True, slots=True)
class Allowed:
    """A restriction beyond the type: its text for error messages, and the test."""

    text: str
    accepts: Callable[[ConfigValue], bool]


ANYTHING = Allowed("", lambda value: True)


def at_least(least: float) -> Allowed:
    return Allowed(f"at least {least}", lambda value: isinstance(value, int | float) and value >= least)


def between(least: float, most: float) -> Allowed:
    return Allowed(f"{least} to {most}", lambda value: isinstance(value, int | float) and least <= value <= most)


def one_of(*words: str) -> Allowed:
    return Allowed(f"one of {', '.join(words)}", lambda value: value in words)


def list_of(*words: str) -> Allowed:
    """Every item is one of `words`; the list may not be empty."""
    return Allowed(
        f"a list of {', '.join(words)}",
        lambda value: isinstance(value, tuple) and bool(value) and all(item in words for item in value),
    )


def any_of(*words: str) -> Allowed:
    """Every item is one of `words`; the list may be empty."""
    return Allowed(
        f"a list of {', '.join(words)}, or nothing",
        lambda value: isinstance(value, tuple) and all(item in words for item in value),
    )


NOT_EMPTY = Allowed("something", lambda value: value not in ("", ()))


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `default` None means "not set"; a REQUIRED key must be given."""

    name: str
    type: ConfigType
    default: ConfigValue = None
    allowed: Allowed = ANYTHING
    required: bool = False

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    @property
    def expected(self) -> str:
        """What may be given, for an error message."""
        words = {
            ConfigType.BOOLEAN: "true or false",
            ConfigType.DOUBLE: "a number",
            ConfigType.LIST: "a comma-separated list",
            ConfigType.CLASS: "a class name",
        }.get(self.type, "text" if self.type not in _BITS else f"a whole number of {_BITS[self.type]} bits")
        return f"{words}, {self.allowed.text}" if self.allowed.text else words

    def parse(self, text: str) -> ConfigValue:
        """Read a value; raises ValueError whose text says what is allowed."""
        try:
            value = _parse(self.type, text.strip())
        except ValueError:
            raise ValueError(self.problem(text)) from None
        if not self.allowed.accepts(value):
            raise ValueError(self.problem(text))
        return value

    def problem(self, text: str) -> str:
        shown = "the value given" if self.sensitive else repr(text)
        return f"{self.name}: {self.expected} is expected, not {shown}"


def _parse(kind: ConfigType, text: str) -> ConfigValue:
    match kind:
        case ConfigType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise ValueError(text)
            return text.lower() == "true"
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            number = int(text) if text.isascii() and "_" not in text else int("")
            bound = 1 << (_BITS[kind] - 1)
            if not -bound <= number < bound:
                raise ValueError(text)
            return number
        case ConfigType.DOUBLE:
            return float(text)
        case ConfigType.LIST:
            return tuple(item for item in (part.strip() for part in text.split(",")) if item)
        case _:
            return text


def format_value(value: ConfigValue) -> str | None:
    """Write a value as DescribeConfigs shows it; None stays None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if value == DOUBLE_MAX and isinstance(value, float):
        return "1.7976931348623157E308"
    return str(value)
