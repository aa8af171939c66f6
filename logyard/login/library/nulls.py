"""Finds a null in an answer where the protocol has none: kafka-python (pinned) decodes it, and stumbles on it later.

Only what may hold one is looked at: texts, arrays, and what is in them.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

_TEXTS = frozenset({"string", "bytes"})


class _Look(NamedTuple):
    """At one field: whether it may be null, and the looks at what is in it, or in each of it."""

    name: str
    may_be_null: bool
    is_array: bool
    inside: tuple["_Look", ...]


def misplaced_null(answer: Any) -> str | None:
    """Return the name of a field that is null and may not be, None if there is none."""
    if answer is None:
        return None  # to a request that has no answer
    kind: Any = type(answer)
    looks = _looks_at(kind, answer.API_VERSION)
    return next(_nulls(answer, looks), None)


def _nulls(thing: Any, looks: tuple[_Look, ...]) -> Iterator[str]:
    for name, may_be_null, is_array, inside in looks:
        value = getattr(thing, name)
        if value is None:
            if not may_be_null:
                yield name
        elif inside:
            for each in value if is_array else (value,):
                yield from _nulls(each, inside)


@lru_cache(maxsize=256)
def _looks_at(kind: Any, version: int) -> tuple[_Look, ...]:
    return tuple(_looks(kind._struct._fields, version))


def _looks(fields: Any, version: int) -> Iterator[_Look]:
    for field in fields:
        # A tagged field that is not there has a default, which may be null.
        if not field.for_version_q(version) or field.tagged_field_q(version):
            continue
        holds = field.is_struct_array() or field.is_struct()
        inside = tuple(_looks(_fields_of(field), version)) if holds else ()
        may_be_null = field.nullable_for_version_q(version)
        can_be_null = field.is_array() or field.type_str in _TEXTS
        if inside or (can_be_null and not may_be_null):
            yield _Look(field.name, may_be_null or not can_be_null, field.is_array(), inside)


def _fields_of(field: Any) -> Any:
    return field.array_of._fields if field.is_struct_array() else field._fields
