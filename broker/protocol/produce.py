"""Produce v0 to v12, coded by hand: the records are slices of the frame, not copied.

Versions: 3 transactional id; 9 flexible; answers: 1 throttle time, 2 log append time, 5 log start offset,
8 record errors (KIP-467), 10 current leader and node endpoints as tagged fields (KIP-951).
"""

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, NoReturn

from logyard.broker.errors import CorruptData
from logyard.broker.protocol import primitives

VERSION_MAX = 12
# Five times as many partitions as one broker should lead. Each part is some objects, which make a garbage collection
# longer.
PARTS_MAX = 20_000
_FLEXIBLE = 9

_ACKS_TIMEOUT = struct.Struct(">hi")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ACKS_TIMEOUT_COUNT = struct.Struct(">hiB")
_INDEX_SIZE = struct.Struct(">ii")
_INDEX_FIRST_BYTE = struct.Struct(">iB")
_RESPONSE_HEAD = struct.Struct(">ii")
_OUTCOME = struct.Struct(">ihq")
_INT64 = struct.Struct(">q")
_LEADER = struct.Struct(">ii")
# A partition's answer from v9 on, without record errors, error message and tagged fields.
_PLAIN_OUTCOME = struct.Struct(">ihqqqBBB")
# The answer of one such partition alone: what is before the topic's name, and what is after it.
_ONE_HEAD, _ONE_TAIL = struct.Struct(">iiBB"), struct.Struct(">BihqqqBBBBiB")
_ONE_SIZE = _ONE_HEAD.size + _ONE_TAIL.size - 4
# Its last fields: no record errors, no message, no leader.
_PLAIN_REST = ((), None, None)
_new = tuple.__new__  # hot path: a NamedTuple's own is Python


Part = tuple[str, int, memoryview]
"""Topic, partition and records."""


class ManyParts(Exception):
    """The request has more topics or partitions than the caller allows."""


class ProduceRequest(NamedTuple):
    """A Produce request; `partitions` are in its order.

    The records are slices of the frame, writable if the frame is; they are empty if the client sent null.
    """

    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: list[Part]


class PartitionOutcome(NamedTuple):
    """One partition of a Produce answer; fields that a version does not have are not written.

    `record_errors` has (index in the batch, text). `current_leader` is (leader id, leader epoch), for
    NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH.
    """

    topic: str
    partition: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None


class NodeEndpoint(NamedTuple):
    """The address of a leader that `current_leader` names."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def parse_request(
    version: int, body: memoryview, parts_max: int = PARTS_MAX, found: "list[Part] | None" = None
) -> ProduceRequest:
    """Decode the body of a Produce request; its parts are added to `found`, or to a new list.

    Raises CorruptData, and ManyParts for more than `parts_max` topics or partitions.
    """
    if not 0 <= version <= VERSION_MAX:
        raise CorruptData(f"Produce has no version {version}")
    try:
        partitions = [] if found is None else found
        if version >= _FLEXIBLE:
            return _parse_flexible(body, parts_max, partitions)
        return _parse_classic(version, body, parts_max, partitions)
    except primitives.MALFORMED as error:
        raise primitives.malformed(f"ProduceRequest v{version}", error) from error


def _refuse(name: str, count: int, count_max: int) -> NoReturn:
    """Refuse a count that the frame cannot have, or that is more than the caller allows."""
    if not 0 <= count <= count_max:
        primitives.bad_length(name, count)
    raise ManyParts


def _parse_classic(version: int, body: memoryview, parts_max: int, partitions: list[Part]) -> ProduceRequest:
    end = len(body)
    pos = 0
    transactional_id: str | None = None
    if version >= 3:
        transactional_id, pos = primitives.read_string(body, pos, end, "transactional id")
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, pos)
    (topics,) = _INT32.unpack_from(body, pos + 6)
    pos += 10
    if topics < 0 or topics * 6 > end - pos:
        primitives.bad_length("topics", topics)
    if topics > parts_max:
        raise ManyParts
    for _ in range(topics):
        topic, pos = primitives.read_string(body, pos, end, "topic")
        if topic is None:
            primitives.bad_null("topic")
        (count,) = _INT32.unpack_from(body, pos)
        pos += 4
        if count < 0 or count * 8 > end - pos:
            primitives.bad_length("partitions", count)
        if len(partitions) + count > parts_max:
            raise ManyParts
        for _ in range(count):
            index, size = _INDEX_SIZE.unpack_from(body, pos)
            pos += 8
            stop = pos + max(size, 0)
            if size < -1 or stop > end:
                primitives.bad_length("records", size)
            partitions.append((topic, index, body[pos:stop]))
            pos = stop
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def _parse_flexible(body: memoryview, parts_max: int, partitions: list[Part]) -> ProduceRequest:
    # Nearly all varints here have one byte. It is checked inline, because a call for each would double the time.
    end = len(body)
    transactional_id: str | None = None
    pos = 1
    if body[0]:
        transactional_id, pos = primitives.read_compact_string(body, 0, end, "transactional id")
    acks, timeout_ms, topics = _ACKS_TIMEOUT_COUNT.unpack_from(body, pos)
    pos += 7
    if topics > 127:
        topics, pos = primitives.read_uvarint_rest(body, pos, topics)
    topics -= 1  # a compact array's length is one more than its elements
    if topics < 0 or topics * 3 > end - pos or topics > parts_max:
        _refuse("topics", topics, (end - pos) // 3)
    for _ in range(topics):
        size = body[pos]
        stop = pos + size
        if 1 < size < 128 and stop <= end:
            topic, pos = str(body[pos + 1 : stop], "utf-8"), stop
        else:
            topic, pos = _topic(body, pos, end)
        count = body[pos]
        pos += 1
        if count > 127:
            count, pos = primitives.read_uvarint_rest(body, pos, count)
        count -= 1
        if count < 0 or count * 6 > end - pos or len(partitions) + count > parts_max:
            _refuse("partitions", count, (end - pos) // 6)
        for _ in range(count):
            index, size = _INDEX_FIRST_BYTE.unpack_from(body, pos)
            pos += 5
            if size > 127:
                size, pos = primitives.read_uvarint_rest(body, pos, size)
            stop = pos + size - 1 if size else pos
            if stop > end:
                primitives.bad_length("records", size - 1)
            partitions.append((topic, index, body[pos:stop]))
            pos = stop + 1 if body[stop] == 0 else primitives.skip_tags(body, stop, end)
        pos = pos + 1 if body[pos] == 0 else primitives.skip_tags(body, pos, end)
    if body[pos] != 0:
        primitives.skip_tags(body, pos, end)
    return _new(ProduceRequest, (transactional_id, acks, timeout_ms, partitions))


def _topic(body: memoryview, pos: int, end: int) -> tuple[str, int]:
    topic, pos = primitives.read_compact_string(body, pos, end, "topic")
    if topic is None:
        primitives.bad_null("topic")
    return topic, pos


def encode_response(
    version: int,
    correlation_id: int,
    results: Sequence[PartitionOutcome],
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Encode the complete response frame. Each topic is in it once: clients ignore a second entry of a topic."""
    if len(results) == 1:
        (only,) = results
        if version >= _FLEXIBLE and only[6:] == _PLAIN_REST and not node_endpoints:
            return _one_plain(correlation_id, only, throttle_ms)
        return encode_topics(version, correlation_id, {only.topic: results}, throttle_ms, node_endpoints)
    by_topic: dict[str, list[PartitionOutcome]] = {}
    for result in results:
        by_topic.setdefault(result.topic, []).append(result)
    return encode_topics(version, correlation_id, by_topic, throttle_ms, node_endpoints)


def _one_plain(correlation_id: int, outcome: PartitionOutcome, throttle_ms: int) -> bytes:
    """Return what `encode_topics` returns for the usual answer: one partition, nothing refused. Hot path."""
    name, partition, error_code, base_offset, append_time_ms, log_start, _, _, _ = outcome
    topic = _compact_topic(name)
    # Counts of a compact array are one more than its elements; 0 is a null message, or no tagged fields.
    head = _ONE_HEAD.pack(_ONE_SIZE + len(topic), correlation_id, 0, 2)
    tail = _ONE_TAIL.pack(2, partition, error_code, base_offset, append_time_ms, log_start, 1, 0, 0, 0, throttle_ms, 0)
    return head + topic + tail


def encode_topics(
    version: int,
    correlation_id: int,
    by_topic: Mapping[str, Sequence[PartitionOutcome]],
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Encode the complete response frame from the outcomes by topic."""
    out = bytearray(_RESPONSE_HEAD.pack(0, correlation_id))
    if version >= _FLEXIBLE:
        _flexible_response(out, version, by_topic, throttle_ms, node_endpoints)
    else:
        _classic_response(out, version, by_topic, throttle_ms)
    _INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def _classic_response(
    out: bytearray, version: int, topics: Mapping[str, Sequence[PartitionOutcome]], throttle_ms: int
) -> None:
    out += _INT32.pack(len(topics))
    for topic, outcomes in topics.items():
        out += primitives.string(topic)
        out += _INT32.pack(len(outcomes))
        for outcome in outcomes:
            _outcome(out, version, outcome)
            if version >= 8:
                out += _INT32.pack(len(outcome.record_errors))
                for index, text in outcome.record_errors:
                    out += _INT32.pack(index)
                    out += primitives.string(text)
                out += primitives.string(outcome.error_message)
    if version >= 1:
        out += _INT32.pack(throttle_ms)


def _outcome(out: bytearray, version: int, outcome: PartitionOutcome) -> None:
    out += _OUTCOME.pack(outcome.partition, outcome.error_code, outcome.base_offset)
    if version >= 2:
        out += _INT64.pack(outcome.log_append_time_ms)
    if version >= 5:
        out += _INT64.pack(outcome.log_start_offset)


def _flexible_response(
    out: bytearray,
    version: int,
    topics: Mapping[str, Sequence[PartitionOutcome]],
    throttle_ms: int,
    node_endpoints: Sequence[NodeEndpoint],
) -> None:
    out.append(0)  # the header's tagged fields
    out += primitives.uvarint(len(topics) + 1)
    for topic, outcomes in topics.items():
        out += _compact_topic(topic)
        out += primitives.uvarint(len(outcomes) + 1)
        for outcome in outcomes:
            _flexible_outcome(out, version, outcome)
        out.append(0)
    out += _INT32.pack(throttle_ms)
    if node_endpoints and version >= 10:
        primitives.append_node_endpoints(out, node_endpoints)
    else:
        out.append(0)


def _flexible_outcome(out: bytearray, version: int, outcome: PartitionOutcome) -> None:
    _, partition, error_code, base_offset, append_time_ms, log_start, errors, message, leader = outcome
    if not errors and message is None and leader is None:
        # The usual answer: no record errors, a null message, no tagged fields.
        out += _PLAIN_OUTCOME.pack(partition, error_code, base_offset, append_time_ms, log_start, 1, 0, 0)
        return
    _outcome(out, version, outcome)
    out += primitives.uvarint(len(errors) + 1)
    for index, text in errors:
        out += _INT32.pack(index)
        out += primitives.compact_string(text)
        out.append(0)
    out += primitives.compact_string(message)
    if version >= 10 and leader is not None:
        out += b"\1\0\x09"  # one tagged field, tag 0, nine bytes
        out += _LEADER.pack(*leader)
    out.append(0)  # ends the partition, or the struct of the leader inside its tagged field


@lru_cache(maxsize=4096)
def _compact_topic(topic: str) -> bytes:
    """Return a topic's name as a compact string, cached: the same few names are written often."""
    return primitives.compact_string(topic)
