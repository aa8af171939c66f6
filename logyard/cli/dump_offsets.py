"""The records of `__consumer_offsets` as kafka-dump-log --offsets-decoder prints them: JSON of Kafka's schemas.

Offset commits (key 0 and 1) and classic groups (key 2), values up to version 3, which is what ZooKeeper-mode brokers
write. What a group's members said is shown too where they speak the consumer's protocol.
"""

import base64
import json
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

_INTEGERS = {"int16": struct.Struct(">h"), "int32": struct.Struct(">i"), "int64": struct.Struct(">q")}
_VALUE_MAX = 3
_CONSUMER = "consumer"


class _Field(NamedTuple):
    """One field: `type` is that of an item where `many`; there from version `since` to `until`."""

    name: str
    type: "str | tuple[_Field, ...]"
    since: int = 0
    until: int = 99
    many: bool = False


_PARTITIONS = (_Field("topic", "string"), _Field("partitions", "int32", many=True))
_OFFSET_KEY = (_Field("group", "string"), _Field("topic", "string"), _Field("partition", "int32"))
_OFFSET = (
    _Field("offset", "int64"),
    _Field("leaderEpoch", "int32", since=3),
    _Field("metadata", "string"),
    _Field("commitTimestamp", "int64"),
    _Field("expireTimestamp", "int64", since=1, until=1),
)
_GROUP_KEY = (_Field("group", "string"),)
_MEMBER = (
    _Field("memberId", "string"),
    _Field("groupInstanceId", "string", since=3),
    _Field("clientId", "string"),
    _Field("clientHost", "string"),
    _Field("rebalanceTimeout", "int32", since=1),
    _Field("sessionTimeout", "int32"),
    _Field("subscription", "bytes"),
    _Field("assignment", "bytes"),
)
_GROUP = (
    _Field("protocolType", "string"),
    _Field("generation", "int32"),
    _Field("protocol", "string"),
    _Field("leader", "string"),
    _Field("currentStateTimestamp", "int64", since=2),
    _Field("members", _MEMBER, many=True),
)
_SUBSCRIPTION = (
    _Field("topics", "string", many=True),
    _Field("userData", "bytes"),
    _Field("ownedPartitions", _PARTITIONS, since=1, many=True),
    _Field("generationId", "int32", since=2),
    _Field("rackId", "string", since=3),
)
_ASSIGNMENT = (_Field("assignedPartitions", _PARTITIONS, many=True), _Field("userData", "bytes"))


class _Unreadable(Exception):
    """The bytes do not hold what the version promises."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self, schema: tuple[_Field, ...], version: int) -> dict[str, Any]:
        there = (field for field in schema if field.since <= version <= field.until)
        return {field.name: self._field(field, version) for field in there}

    def integer(self, kind: str) -> int:
        form = _INTEGERS[kind]
        return int(form.unpack(self._take(form.size))[0])

    def _field(self, field: _Field, version: int) -> Any:
        if not field.many:
            return self._one(field, version)
        return [self._one(field, version) for _ in range(self._length(self.integer("int32")))]

    def _one(self, field: _Field, version: int) -> Any:
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
            raise _Unreadable(f"{len(self._data)} bytes are too few")
        self._at += size
        return self._data[self._at - size : self._at]

    def _length(self, count: int) -> int:
        if count > len(self._data):
            raise _Unreadable(f"{count} entries do not fit in {len(self._data)} bytes")
        return max(count, 0)


def decode(offset: int, key: bytes | None, value: bytes | None) -> tuple[str, str | None]:
    """What is shown as key and payload of a record. Raises ValueError where there is no key."""
    if key is None:
        raise ValueError(
            f"Failed to decode message at offset {offset} using offset topic decoder (message had a missing key)"
        )
    try:
        reader = _Reader(key)
        kind = reader.integer("int16")
        if kind > 2:
            return f"Unknown record type {kind} at offset {offset}, skipping.", None
        shown = {"type": str(kind), "data": reader.read(_GROUP_KEY if kind == 2 else _OFFSET_KEY, kind)}
        if value is None:
            return _json(shown), "<DELETE>"
        return _json(shown), _json(_value(value, is_group=kind == 2))
    except _Unreadable as problem:
        return f"Error at offset {offset}, skipping. {problem}", None


def _value(data: bytes, *, is_group: bool) -> dict[str, Any]:
    reader = _Reader(data)
    version = reader.integer("int16")
    if not 0 <= version <= _VALUE_MAX:
        raise _Unreadable(f"version {version} is not known here")
    found = reader.read(_GROUP if is_group else _OFFSET, version)
    if found.get("protocolType") == _CONSUMER:
        for member in found["members"]:
            member["subscription"] = _opened(member["subscription"], _SUBSCRIPTION)
            member["assignment"] = _opened(member["assignment"], _ASSIGNMENT)
    return {"version": str(version), "data": found}


def _opened(data: bytes, schema: tuple[_Field, ...]) -> bytes | Mapping[str, Any]:
    """What a member said, as its fields; as bytes where it is something else."""
    try:
        reader = _Reader(data)
        return reader.read(schema, min(reader.integer("int16"), _VALUE_MAX))
    except _Unreadable:
        return data


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False, default=_base64)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
