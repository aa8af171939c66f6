"""The records of `__transaction_state`: keys and values as bytes, byte for byte Kafka's (facts §17.1).

Key v0 is a transactional id. Values are v0 and v1 (flexible); v0 is written. A null value is a tombstone.
"""

import struct

from logyard.broker.errors import CorruptData
from logyard.broker.model import TopicPartition
from logyard.broker.protocol.primitives import (
    MALFORMED,
    bad_length,
    bad_null,
    malformed,
    read_compact_string,
    read_string,
    read_uvarint,
    skip_tags,
    string,
)
from logyard.broker.transactions.states import State
from logyard.broker.transactions.transaction import Stored

KEY_VERSION = 0
WRITTEN_VERSION = 0
FLEXIBLE_VERSION = 1

_VERSION = struct.Struct(">h")
_HEAD = struct.Struct(">qhib")
_COUNT = struct.Struct(">i")
_TIMES = struct.Struct(">qq")
_NULL = _COUNT.pack(-1)


def key(transactional_id: str) -> bytes:
    return _VERSION.pack(KEY_VERSION) + string(transactional_id)


def value(stored: Stored) -> bytes:
    """The record's value; partitions are null where the state is Empty."""
    head = _HEAD.pack(stored.producer_id, stored.epoch, stored.timeout_ms, stored.state)
    times = _TIMES.pack(stored.updated_ms, stored.start_ms)
    partitions = _NULL if stored.state is State.EMPTY else _partitions(stored.partitions)
    return _VERSION.pack(WRITTEN_VERSION) + head + partitions + times


def _partitions(partitions: frozenset[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    body = b"".join(
        string(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers) for topic, numbers in topics.items()
    )
    return _COUNT.pack(len(topics)) + body


def decode_key(data: bytes) -> str | None:
    """Read a key; None for key versions of the future. Raises CorruptData."""
    try:
        (version,) = _VERSION.unpack_from(data)
        if version != KEY_VERSION:
            return None
        transactional_id, _ = read_string(memoryview(data), 2, len(data), "transactional id")
    except MALFORMED as error:
        raise malformed("a key of __transaction_state", error) from error
    return transactional_id if transactional_id is not None else bad_null("transactional id")


def decode_value(data: bytes) -> Stored:
    """Read a value of version 0 or 1. Raises CorruptData, for other versions and unknown states too."""
    try:
        return _decode_value(memoryview(data))
    except MALFORMED as error:
        raise malformed("a value of __transaction_state", error) from error


def _decode_value(data: memoryview) -> Stored:
    (version,) = _VERSION.unpack_from(data)
    if version not in (WRITTEN_VERSION, FLEXIBLE_VERSION):
        raise CorruptData(f"value version {version} in __transaction_state: 0 and 1 are known")
    producer_id, epoch, timeout_ms, state = _HEAD.unpack_from(data, _VERSION.size)
    if not State.EMPTY <= state < State.DEAD:
        raise CorruptData(f"state {state} in __transaction_state: 0 to 5 are stored")
    is_flexible = version == FLEXIBLE_VERSION
    partitions, pos = _decode_partitions(data, _VERSION.size + _HEAD.size, is_flexible=is_flexible)
    updated_ms, start_ms = _TIMES.unpack_from(data, pos)
    if is_flexible:
        skip_tags(data, pos + _TIMES.size, len(data))
    return Stored(producer_id, epoch, timeout_ms, State(state), frozenset(partitions), updated_ms, start_ms)


def _decode_partitions(data: memoryview, pos: int, *, is_flexible: bool) -> tuple[list[TopicPartition], int]:
    """Return the partitions, none for null, and the position behind them."""
    found: list[TopicPartition] = []
    topics, pos = _length(data, pos, is_flexible=is_flexible)
    read = read_compact_string if is_flexible else read_string
    for _ in range(topics):
        topic, pos = read(data, pos, len(data), "topic")
        numbers, pos = _length(data, pos, is_flexible=is_flexible)
        if pos + 4 * numbers > len(data):
            bad_length("partitions", numbers)
        name = topic if topic is not None else bad_null("topic")
        found += [TopicPartition(name, number) for number in struct.unpack_from(f">{numbers}i", data, pos)]
        pos += 4 * numbers
        if is_flexible:
            pos = skip_tags(data, pos, len(data))
    return found, pos


def _length(data: memoryview, pos: int, *, is_flexible: bool) -> tuple[int, int]:
    if is_flexible:
        length, pos = read_uvarint(data, pos)
        return max(length - 1, 0), pos
    (length,) = _COUNT.unpack_from(data, pos)
    return max(length, 0), pos + _COUNT.size
