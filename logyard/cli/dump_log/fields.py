"""Fields of Kafka's older schemas, as in the records of its internal topics: no compact lengths, no tags."""

import struct
from typing import Any, NamedTuple

_INTEGERS = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
}


class Field(NamedTuple):
    """One field of versions `since` to `until`; with `many` an array whose items are of `type`."""

    name: str
    type: "str | tuple[Field, ...]"
    since: int = 0
    until: int = 99
    many: bool = False


class Unreadable(Exception):
    """The bytes do not match the schema of their version."""


class Reader:
    """Reads one field after another; raises Unreadable."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self, schema: tuple[Field, ...], version: int) -> dict[str, Any]:
        there = (field for field in schema if field.since <= version <= field.until)
        return {field.name: self._field(field, version) for field in there}

    def integer(self, kind: str) -> int:
        form = _INTEGERS[kind]
        return int(form.unpack(self._take(form.size))[0])

    def _field(self, field: Field, version: int) -> Any:
        if not field.many:
            return self._one(field, version)
        return [self._one(field, version) for _ in range(self._length(self.integer("int32")))]

    def _one(self, field: Field, version: int) -> Any:
        if isinstance(field.type, tuple):
            return self.read(field.type, version)
        if field.type in _INTEGERS:
            return self.integer(field.type)
        length = self.integer("int16" if field.type == "string" else "int32")
        if length < 0:
            return None
        data = self._take(length)
        return data if field.type == "bytes" else data.decode("utf-8", "replace")

    def _take(self, size: int) -> bytes:
        if self._at + size > len(self._data):
            raise Unreadable(f"{len(self._data)} bytes are too few")
        self._at += size
        return self._data[self._at - size : self._at]

    def _length(self, count: int) -> int:
        if count > len(self._data):
            raise Unreadable(f"{count} entries do not fit in {len(self._data)} bytes")
        return max(count, 0)


def present(key: bytes | None, offset: int, decoder: str) -> bytes:
    """Return a record's key. Raises ValueError, in the tool's words, for a record without one."""
    if key is None:
        raise ValueError(
            f"Failed to decode message at offset {offset} using {decoder} decoder (message had a missing key)"
        )
    return key
