"""The fields of a broker's answer, each checked as it is read: one that is not as docs/leases.md says ends in one line
that names the broker and the field."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from logyard.spark_jobs.leases.broker_http import BAD_ANSWER, LeaseError

SHOWN_MAX = 60


@dataclass(frozen=True, slots=True)
class Answer:
    """A JSON object of an answer; every method raises LeaseError (`bad_answer`) for a field that is missing or of
    another type.

    :param where: names the broker and the request.
    :param path: where the object is in the answer, for messages: "", or `segments[3].`.
    """

    where: str
    fields: Mapping[str, Any]
    path: str = ""

    def number(self, name: str, default: int | None = None) -> int:
        """Return a whole number of 64 bits."""
        return self._number(name, self._value(name, default))

    def ratio(self, name: str) -> float:
        """Return a number."""
        value = self._value(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._bad(name, "a number", value)
        return float(value)

    def flag(self, name: str, default: bool | None = None) -> bool:
        """Return true or false."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self._bad(name, "true or false", value)
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text."""
        return self._text(name, self._value(name, default))

    def text_or_none(self, name: str) -> str | None:
        """Return a text; None if the field is null or missing."""
        value = self.fields.get(name)
        return None if value is None else self._text(name, value)

    def inner(self, name: str) -> "Answer":
        """Return an object in it."""
        return self._inner(name, self._value(name))

    def inners(self, name: str) -> "list[Answer]":
        """Return a list of objects."""
        return [self._inner(f"{name}[{n}]", value) for n, value in enumerate(self._list(name))]

    def numbers(self, name: str) -> list[int]:
        """Return a list of whole numbers."""
        return [self._number(f"{name}[{n}]", value) for n, value in enumerate(self._list(name))]

    def texts(self, name: str) -> list[str]:
        """Return a list of texts."""
        return [self._text(f"{name}[{n}]", value) for n, value in enumerate(self._list(name))]

    def pairs(self, name: str) -> list[tuple[int, int]]:
        """Return a list of pairs of whole numbers."""
        found = []
        for n, value in enumerate(self._list(name)):
            if not isinstance(value, list) or len(value) != 2:
                raise self._bad(f"{name}[{n}]", "a pair", value)
            found.append((self._number(f"{name}[{n}][0]", value[0]), self._number(f"{name}[{n}][1]", value[1])))
        return found

    def by_name(self, name: str) -> dict[str, int]:
        """Return an object of whole numbers."""
        inner = self.inner(name)
        return {key: inner.number(key) for key in inner.fields}

    def _value(self, name: str, default: Any = None) -> Any:
        value = self.fields.get(name, default)
        if value is None and name not in self.fields:
            raise LeaseError(BAD_ANSWER, f"{self.where}: field {self.path}{name} is missing")
        return value

    def _list(self, name: str) -> list[Any]:
        value = self._value(name)
        if not isinstance(value, list):
            raise self._bad(name, "a list", value)
        return value

    def _inner(self, name: str, value: Any) -> "Answer":
        if not isinstance(value, dict):
            raise self._bad(name, "an object", value)
        return Answer(self.where, value, f"{self.path}{name}.")

    def _number(self, name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
            raise self._bad(name, "a whole number", value)
        return value

    def _text(self, name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self._bad(name, "a text", value)
        return value

    def _bad(self, name: str, wanted: str, value: Any) -> LeaseError:
        shown = json.dumps(value)
        shown = shown if len(shown) <= SHOWN_MAX else f"{shown[:SHOWN_MAX]}…"
        return LeaseError(BAD_ANSWER, f"{self.where}: field {self.path}{name}: {wanted} is expected, not {shown}")
