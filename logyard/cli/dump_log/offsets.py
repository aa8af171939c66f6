"""The records of `__consumer_offsets` as kafka-dump-log --offsets-decoder prints them: JSON of Kafka's schemas.

Offset commits (key 0 and 1) and classic groups (key 2), values up to version 3, which is what ZooKeeper-mode brokers
write. Members' subscriptions and assignments are decoded if they use the consumer protocol.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

from logyard.cli.dump_log.fields import Field, Reader, Unreadable, present

_VALUE_MAX = 3
_CONSUMER = "consumer"


_PARTITIONS = (Field("topic", "string"), Field("partitions", "int32", many=True))
_OFFSET_KEY = (Field("group", "string"), Field("topic", "string"), Field("partition", "int32"))
_OFFSET = (
    Field("offset", "int64"),
    Field("leaderEpoch", "int32", since=3),
    Field("metadata", "string"),
    Field("commitTimestamp", "int64"),
    Field("expireTimestamp", "int64", since=1, until=1),
)
_GROUP_KEY = (Field("group", "string"),)
_MEMBER = (
    Field("memberId", "string"),
    Field("groupInstanceId", "string", since=3),
    Field("clientId", "string"),
    Field("clientHost", "string"),
    Field("rebalanceTimeout", "int32", since=1),
    Field("sessionTimeout", "int32"),
    Field("subscription", "bytes"),
    Field("assignment", "bytes"),
)
_GROUP = (
    Field("protocolType", "string"),
    Field("generation", "int32"),
    Field("protocol", "string"),
    Field("leader", "string"),
    Field("currentStateTimestamp", "int64", since=2),
    Field("members", _MEMBER, many=True),
)
_SUBSCRIPTION = (
    Field("topics", "string", many=True),
    Field("userData", "bytes"),
    Field("ownedPartitions", _PARTITIONS, since=1, many=True),
    Field("generationId", "int32", since=2),
    Field("rackId", "string", since=3),
)
_ASSIGNMENT = (Field("assignedPartitions", _PARTITIONS, many=True), Field("userData", "bytes"))


def decode(offset: int, key: bytes | None, value: bytes | None) -> tuple[str, str | None]:
    """Return the text for key and payload of a record. Raises ValueError if there is no key."""
    key = present(key, offset, "offset topic")
    try:
        reader = Reader(key)
        kind = reader.integer("int16")
        if kind > 2:
            return f"Unknown record type {kind} at offset {offset}, skipping.", None
        shown = {"type": str(kind), "data": reader.read(_GROUP_KEY if kind == 2 else _OFFSET_KEY, kind)}
        if value is None:
            return _json(shown), "<DELETE>"
        return _json(shown), _json(_value(value, is_group=kind == 2))
    except Unreadable as problem:
        return f"Error at offset {offset}, skipping. {problem}", None


def _value(data: bytes, *, is_group: bool) -> dict[str, Any]:
    reader = Reader(data)
    version = reader.integer("int16")
    if not 0 <= version <= _VALUE_MAX:
        raise Unreadable(f"version {version} is not supported")
    found = reader.read(_GROUP if is_group else _OFFSET, version)
    if found.get("protocolType") == _CONSUMER:
        for member in found["members"]:
            member["subscription"] = _opened(member["subscription"], _SUBSCRIPTION)
            member["assignment"] = _opened(member["assignment"], _ASSIGNMENT)
    return {"version": str(version), "data": found}


def _opened(data: bytes, schema: tuple[Field, ...]) -> bytes | Mapping[str, Any]:
    """A member's data as fields; as bytes if it is not of the consumer protocol."""
    try:
        reader = Reader(data)
        return reader.read(schema, min(reader.integer("int16"), _VALUE_MAX))
    except Unreadable:
        return data


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False, default=_base64)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
