"""Values of templated fields: what a template renders, or a caller passes, as the type that the operator needs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from logyard.admin.settings import BadSettings

_NATURAL_MAX = 2**63 - 1  # the largest offset that a request can say
_DIGITS_MAX = len(str(_NATURAL_MAX))


def as_mapping(name: str, value: Mapping[str, Any] | str | None) -> dict[str, Any]:
    """A mapping, or its JSON text. Raises BadSettings."""
    parsed = _parsed(name, value, {})
    if not isinstance(parsed, Mapping):
        raise BadSettings(f"{name}: expected a JSON object, found {value!r}")
    return dict(parsed)


def as_json(name: str, value: Any) -> Any:
    """Any value, or its JSON text; None for an empty one. Raises BadSettings."""
    return _parsed(name, value, None)


def as_list(name: str, value: Sequence[Any] | str | int | None) -> list[Any]:
    """A list, its JSON text, or a single value. Raises BadSettings."""
    parsed = _parsed(name, value, [])
    if isinstance(parsed, Mapping):
        raise BadSettings(f"{name}: expected a JSON list, found {value!r}")
    if isinstance(value, str) and isinstance(parsed, (bool, float)):
        return [value.strip()]  # a name, of a topic or group: 1.10 is not 1.1
    return list(parsed) if isinstance(parsed, (list, tuple)) else [parsed]


def as_names(name: str, value: Sequence[Any] | str | int | None) -> list[str]:
    """The same of names, such as topics: each is a text. Raises BadSettings."""
    return [str(one) for one in as_list(name, value)]


def as_integer(name: str, value: int | str | None, absent: int) -> int:
    """An integer, or its text; `absent` for an empty value ("", "None", "null"). Raises BadSettings."""
    if value in (None, "", "None", "null"):
        return absent
    try:
        return int(str(value))
    except ValueError:
        raise BadSettings(f"{name}: expected an integer, found {value!r}") from None


def as_natural(name: str, value: Any) -> int:
    """A whole number from 0 on, such as a broker's id, a partition or an offset, or its text. Raises BadSettings."""
    text = str(value).strip()
    if not (text.isascii() and text.isdecimal()) or len(text) > _DIGITS_MAX or int(text) > _NATURAL_MAX:
        raise BadSettings(f"{name}: expected a whole number from 0 on, found {value!r}")
    return int(text)


def as_number(name: str, value: float | str | None, absent: float = 0.0) -> float:
    """A number of at least 0, or its text; `absent` for an empty value. Raises BadSettings."""
    if value in (None, "", "None", "null"):
        return absent
    try:
        number = float(str(value))
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise BadSettings(f"{name}: expected a number of at least 0, found {value!r}")
    return number


def as_truth(name: str, value: bool | str) -> bool:
    """True or false, or its text. Raises BadSettings."""
    text = str(value).lower()
    if text not in ("true", "false"):
        raise BadSettings(f"{name}: expected true or false, found {value!r}")
    return text == "true"


def as_config_text(value: Any) -> str:
    """A setting's value in Kafka's notation: true and false in lower case, lists joined by commas."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(as_config_text(item) for item in value)
    return str(value)


def _parsed(name: str, value: Any, empty: Any) -> Any:
    if value is None or value in ("", "None", "null"):
        return empty
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        if isinstance(empty, list):
            return [part.strip() for part in value.split(",")]
        raise BadSettings(f"{name}: expected JSON, found {value!r}") from None
