"""Values of templated fields: what a template renders, or a caller passes, as the type that the operator needs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from logyard.admin.settings import BadSettings


def as_mapping(name: str, value: Mapping[str, Any] | str | None) -> dict[str, Any]:
    """A templated field that is a mapping or the JSON text of one. Raises BadSettings."""
    parsed = _parsed(name, value, {})
    if not isinstance(parsed, Mapping):
        raise BadSettings(f"{name}: a JSON object is expected, found {value!r}")
    return dict(parsed)


def as_json(name: str, value: Any) -> Any:
    """A templated field of any kind, or its JSON text; None where there is nothing. Raises BadSettings."""
    return _parsed(name, value, None)


def as_list(name: str, value: Sequence[Any] | str | int | None) -> list[Any]:
    """A templated field that is a list, the JSON text of one, or a single value. Raises BadSettings."""
    parsed = _parsed(name, value, [])
    if isinstance(parsed, Mapping):
        raise BadSettings(f"{name}: a JSON list is expected, found {value!r}")
    return list(parsed) if isinstance(parsed, (list, tuple)) else [parsed]


def as_integer(name: str, value: int | str | None, absent: int) -> int:
    """A templated field that is a number, its text, or nothing ("", "None": `absent`). Raises BadSettings."""
    if value in (None, "", "None", "null"):
        return absent
    try:
        return int(str(value))
    except ValueError:
        raise BadSettings(f"{name}: an integer is expected, found {value!r}") from None


def as_number(name: str, value: float | str | None, absent: float = 0.0) -> float:
    """A templated field that is a number of at least 0, its text, or nothing. Raises BadSettings."""
    if value in (None, "", "None", "null"):
        return absent
    try:
        number = float(str(value))
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise BadSettings(f"{name}: a number of at least 0 is expected, found {value!r}")
    return number


def as_truth(name: str, value: bool | str) -> bool:
    """A templated field that is true or false, or its text. Raises BadSettings."""
    text = str(value).lower()
    if text not in ("true", "false"):
        raise BadSettings(f"{name}: true or false is expected, found {value!r}")
    return text == "true"


def as_config_text(value: Any) -> str:
    """A setting's value as Kafka writes it: true and false in small letters, lists joined by commas."""
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
        raise BadSettings(f"{name}: JSON is expected, found {value!r}") from None
