"""Produce v0 to v11, by hand: the records stay where they were received and are handed on as slices.

Versions: 3 transactional id; 9 flexible; answers: 1 throttle time, 2 log append time, 5 log start offset,
8 record errors (KIP-467), 10 current leader and node endpoints as tagged fields (KIP-951).
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from logyard.broker.errors import CorruptData
from logyard.broker.protocol import primitives

VERSION_MAX = 11
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
# A partition's answer, v9 on: the outcome, then the lengths of no record errors and a null message, and no tags.
_PLAIN_OUTCOME = struct.Struct(">ihqqqBBB")


class ProduceRequest(NamedTuple):
    """A Produce request; `partitions` are (topic, partition, records) in the order of the request.

    The records are slices of the frame, writable if it is; empty where the client sent null.
    """

    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: list[tuple[str, int, memoryview]]


class PartitionOutcome(NamedTuple):
    """What became of one partition's records; fields that a version does not have are left out.

    `record_errors` are (index in the batch, text); `current_leader` is (leader id, leader epoch) to go with
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
    """Where a leader named in `current_leader` is reached."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def parse_request(version: int, body: memoryview) -> ProduceRequest:
    """Read the body of a Produce request; raises CorruptData on anything malformed."""
    if not 0 <= version <= VERSION_MAX:
        raise CorruptData(f"Produce has no version {version}")
    try:
        return _parse_flexible(body) if version >= _FLEXIBLE else _parse_classic(version, body)
    except primitives.MALFORMED as error:
        raise primitives.malformed(f"ProduceRequest v{version}", error) from error


def _parse_classic(version: int, body: memoryview) -> ProduceRequest:
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
    partitions: list[tuple[str, int, memoryview]] = []
    for _ in range(topics):
        topic, pos = primitives.read_string(body, pos, end, "topic")
        if topic is None:
            primitives.bad_null("topic")
        (count,) = _INT32.unpack_from(body, pos)
        pos += 4
        if count < 0 or count * 8 > end - pos:
            primitives.bad_length("partitions", count)
        for _ in range(count):
            index, size = _INDEX_SIZE.unpack_from(body, pos)
            pos += 8
            stop = pos + max(size, 0)
            if size < -1 or stop > end:
                primitives.bad_length("records", size)
            partitions.append((topic, index, body[pos:stop]))
            pos = stop
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def _parse_flexible(body: memoryview) -> ProduceRequest:
    # Nearly every varint here has one byte: it is looked at on the spot, a call each would double the cost.
    end = len(body)
    transactional_id: str | None = None
    pos = 1
    if body[0]:
        transactional_id, pos = primitives.read_compact_string(body, 0, end, "transactional id")
    acks, timeout_ms, topics = _ACKS_TIMEOUT_COUNT.unpack_from(body, pos)
    pos += 7
    if topics > 127:
        topics, pos = primitives.read_uvarint_rest(body, pos, topics)
    if topics == 0 or (topics - 1) * 3 > end - pos:
        primitives.bad_length("topics", topics - 1)
    partitions: list[tuple[str, int, memoryview]] = []
    for _ in range(topics - 1):
        topic, pos = primitives.read_compact_string(body, pos, end, "topic")
        if topic is None:
            primitives.bad_null("topic")
        count = body[pos]
        pos += 1
        if count > 127:
            count, pos = primitives.read_uvarint_rest(body, pos, count)
        if count == 0 or (count - 1) * 6 > end - pos:
            primitives.bad_length("partitions", count - 1)
        for _ in range(count - 1):
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
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def encode_response(
    version: int,
    correlation_id: int,
    results: Sequence[PartitionOutcome],
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Write the complete response frame; results of one topic that follow each other are put together."""
    out = bytearray(_RESPONSE_HEAD.pack(0, correlation_id))
    if version >= _FLEXIBLE:
        _flexible_response(out, version, _by_topic(results), throttle_ms, node_endpoints)
    else:
        _classic_response(out, version, _by_topic(results), throttle_ms)
    _INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def _by_topic(results: Sequence[PartitionOutcome]) -> list[tuple[str, Sequence[PartitionOutcome]]]:
    if len(results) == 1:
        return [(results[0].topic, results)]
    return [(topic, list(outcomes)) for topic, outcomes in groupby(results, key=attrgetter("topic"))]


def _classic_response(
    out: bytearray, version: int, topics: list[tuple[str, Sequence[PartitionOutcome]]], throttle_ms: int
) -> None:
    out += _INT32.pack(len(topics))
    for topic, outcomes in topics:
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
    topics: list[tuple[str, Sequence[PartitionOutcome]]],
    throttle_ms: int,
    node_endpoints: Sequence[NodeEndpoint],
) -> None:
    out.append(0)  # the header's tagged fields
    out += primitives.uvarint(len(topics) + 1)
    for topic, outcomes in topics:
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
    """The same few names are answered again and again."""
    return primitives.compact_string(topic)
