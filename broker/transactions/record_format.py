"""The records of `__transaction_state`: keys and values as bytes, byte for byte Kafka's (facts §17.1).

Key v0 is a transactional id. Values are v0 and v1, which is flexible and has as tagged fields what version 2 of the
feature `transaction.version` needs: it is written from version 1 of the feature on (facts §17.12). A null value is a
tombstone.
"""

import struct
from collections.abc import Mapping

from logyard.broker.errors import CorruptData
from logyard.broker.model import TopicPartition
from logyard.broker.protocol.primitives import (
    MALFORMED,
    bad_length,
    bad_null,
    compact_string,
    malformed,
    read_compact_string,
    read_string,
    read_uvarint,
    skip_tags,
    string,
    uvarint,
)
from logyard.broker.transactions.events import NO_PRODUCER_ID
from logyard.broker.transactions.states import State
from logyard.broker.transactions.transaction import Stored

KEY_VERSION = 0
PLAIN_VERSION = 0
FLEXIBLE_VERSION = 1
PREVIOUS_ID, NEXT_ID, CLIENT_VERSION = 0, 1, 2
"""The tags of version 1; a field that has its default is left out."""

_VERSION = struct.Struct(">h")
_HEAD = struct.Struct(">qhib")
_COUNT = struct.Struct(">i")
_TIMES = struct.Struct(">qq")
_INT64 = struct.Struct(">q")
_NULL = _COUNT.pack(-1)
_NO_TAGS = b"\x00"


def key(transactional_id: str) -> bytes:
    return _VERSION.pack(KEY_VERSION) + string(transactional_id)


def value(stored: Stored, version: int = PLAIN_VERSION) -> bytes:
    """The record's value in that version; partitions are null where the state is Empty."""
    head = _HEAD.pack(stored.producer_id, stored.epoch, stored.timeout_ms, stored.state)
    times = _TIMES.pack(stored.updated_ms, stored.start_ms)
    if version == PLAIN_VERSION:
        partitions = _NULL if stored.state is State.EMPTY else _partitions(stored.partitions)
        return _VERSION.pack(version) + head + partitions + times
    partitions = b"\x00" if stored.state is State.EMPTY else _compact_partitions(stored.partitions)
    return _VERSION.pack(version) + head + partitions + times + _tags(stored)


def _tags(stored: Stored) -> bytes:
    tags = [
        uvarint(tag) + b"\x08" + _INT64.pack(producer_id)
        for tag, producer_id in ((PREVIOUS_ID, stored.previous_id), (NEXT_ID, stored.next_id))
        if producer_id != NO_PRODUCER_ID
    ]
    if stored.client_version:
        tags.append(uvarint(CLIENT_VERSION) + b"\x02" + _VERSION.pack(stored.client_version))
    return uvarint(len(tags)) + b"".join(tags)


def _by_topic(partitions: frozenset[TopicPartition]) -> dict[str, list[int]]:
    """Return the numbers of each topic, both in order. To sort pairs takes three times as long."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    for numbers in topics.values():
        numbers.sort()
    return dict(sorted(topics.items()))


def _compact_partitions(partitions: frozenset[TopicPartition]) -> bytes:
    topics = _by_topic(partitions)
    body = b"".join(
        compact_string(topic) + uvarint(len(numbers) + 1) + struct.pack(f">{len(numbers)}i", *numbers) + _NO_TAGS
        for topic, numbers in topics.items()
    )
    return uvarint(len(topics) + 1) + body


def _partitions(partitions: frozenset[TopicPartition]) -> bytes:
    topics = _by_topic(partitions)
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
    if version not in (PLAIN_VERSION, FLEXIBLE_VERSION):
        raise CorruptData(f"value version {version} in __transaction_state: 0 and 1 are known")
    producer_id, epoch, timeout_ms, state = _HEAD.unpack_from(data, _VERSION.size)
    if not State.EMPTY <= state < State.DEAD:
        raise CorruptData(f"state {state} in __transaction_state: 0 to 5 are stored")
    is_flexible = version == FLEXIBLE_VERSION
    partitions, pos = _decode_partitions(data, _VERSION.size + _HEAD.size, is_flexible=is_flexible)
    updated_ms, start_ms = _TIMES.unpack_from(data, pos)
    tags = _read_tags(data, pos + _TIMES.size) if is_flexible else {}
    return Stored(
        producer_id,
        epoch,
        timeout_ms,
        State(state),
        frozenset(partitions),
        updated_ms,
        start_ms,
        _tagged(tags, PREVIOUS_ID, _INT64, NO_PRODUCER_ID),
        _tagged(tags, NEXT_ID, _INT64, NO_PRODUCER_ID),
        _tagged(tags, CLIENT_VERSION, _VERSION, 0),
    )


def _read_tags(data: memoryview, pos: int) -> dict[int, memoryview]:
    tags: dict[int, memoryview] = {}
    count, pos = read_uvarint(data, pos)
    for _ in range(count):
        tag, pos = read_uvarint(data, pos)
        size, pos = read_uvarint(data, pos)
        if pos + size > len(data):
            bad_length("tagged field", size)
        tags[tag] = data[pos : pos + size]
        pos += size
    return tags


def _tagged(tags: Mapping[int, memoryview], tag: int, form: struct.Struct, default: int) -> int:
    if tag not in tags:
        return default
    (found,) = form.unpack(tags[tag])
    return int(found)


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
