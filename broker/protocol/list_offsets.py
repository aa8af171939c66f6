"""ListOffsets v4 to v9 of one partition, coded by hand: what clients that look for a time send, one after the other.

Versions: 6 flexible. Everything else is for the codec, which also says what is wrong with a request.
"""

import struct
from typing import NamedTuple

from logyard.broker.protocol import primitives

_FIRST, _FLEXIBLE, _LAST = 4, 6, 9

# What is before a topic's name, and what is behind it.
_HEAD, _TAIL = struct.Struct(">ibih"), struct.Struct(">iiiq")
_FLEXIBLE_HEAD, _FLEXIBLE_TAIL = struct.Struct(">ibBB"), struct.Struct(">BiiqBBB")
_ANSWER_HEAD, _ANSWER_TAIL = struct.Struct(">iiii"), struct.Struct(">iihqqi")
_FLEXIBLE_ANSWER_HEAD, _FLEXIBLE_ANSWER_TAIL = struct.Struct(">iiBiB"), struct.Struct(">BihqqiBBB")
_NAME_AT, _FLEXIBLE_NAME_AT = _HEAD.size - 2, _FLEXIBLE_HEAD.size - 1
_BESIDES = _ANSWER_HEAD.size + _ANSWER_TAIL.size - 4
_FLEXIBLE_BESIDES = _FLEXIBLE_ANSWER_HEAD.size + _FLEXIBLE_ANSWER_TAIL.size - 4
_new = tuple.__new__


class Asked(NamedTuple):
    """A request for one partition; `name` is the topic's, encoded."""

    replica_id: int
    isolation_level: int
    topic: str
    name: bytes
    partition: int
    leader_epoch: int
    timestamp: int


def parse_one(version: int, body: memoryview) -> Asked | None:
    """Decode a request for one partition; None for any other, and for one that is not whole."""
    try:
        if _FLEXIBLE <= version <= _LAST:
            replica_id, isolation_level, topics, length = _FLEXIBLE_HEAD.unpack_from(body)
            stop = _FLEXIBLE_NAME_AT + length
            count, partition, leader_epoch, timestamp, *tags = _FLEXIBLE_TAIL.unpack_from(body, stop)
            if topics != 2 or count != 2 or not 0 < length < 128 or any(tags):
                return None
            name, tail = bytes(body[_FLEXIBLE_NAME_AT:stop]), _FLEXIBLE_TAIL.size
            topic = str(name[1:], "utf-8")
        elif _FIRST <= version < _FLEXIBLE:
            replica_id, isolation_level, topics, length = _HEAD.unpack_from(body)
            stop = _HEAD.size + length
            count, partition, leader_epoch, timestamp = _TAIL.unpack_from(body, stop)
            if topics != 1 or count != 1 or length < 0:
                return None
            name, tail = bytes(body[_NAME_AT:stop]), _TAIL.size
            topic = str(name[2:], "utf-8")
        else:
            return None
    except primitives.MALFORMED:
        return None
    if stop + tail != len(body):
        return None
    return _new(Asked, (replica_id, isolation_level, topic, name, partition, leader_epoch, timestamp))


def encode_one(
    version: int, correlation_id: int, asked: Asked, error_code: int, timestamp: int, offset: int, leader_epoch: int
) -> bytes:
    """Encode the answer to such a request: a complete frame."""
    name, partition = asked.name, asked.partition
    if version >= _FLEXIBLE:
        head = _FLEXIBLE_ANSWER_HEAD.pack(_FLEXIBLE_BESIDES + len(name), correlation_id, 0, 0, 2)
        tail = _FLEXIBLE_ANSWER_TAIL.pack(2, partition, error_code, timestamp, offset, leader_epoch, 0, 0, 0)
    else:
        head = _ANSWER_HEAD.pack(_BESIDES + len(name), correlation_id, 0, 1)
        tail = _ANSWER_TAIL.pack(1, partition, error_code, timestamp, offset, leader_epoch)
    return head + name + tail
