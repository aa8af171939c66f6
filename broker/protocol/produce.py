"""Produce v0 to v11, by hand: the records stay where they were received and are handed on as slices.

Versions: 3 transactional id; 9 flexible; answers: 1 throttle time, 2 log append time, 5 log start offset,
8 record errors (KIP-467), 10 current leader and node endpoints as tagged fields (KIP-951).
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from logyard.broker.errors import CorruptData
from logyard.broker.protocol import wire

VERSION_MAX = 11
_FLEXIBLE = 9

_ACKS_TIMEOUT = struct.Struct(">hi")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INDEX_SIZE = struct.Struct(">ii")
_RESPONSE_HEAD = struct.Struct(">ii")
_OUTCOME = struct.Struct(">ihq")
_INT64 = struct.Struct(">q")
_LEADER = struct.Struct(">ii")


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
    except wire.MALFORMED as error:
        raise wire.malformed(f"ProduceRequest v{version}", error) from error


def _parse_classic(version: int, body: memoryview) -> ProduceRequest:
    end = len(body)
    pos = 0
    transactional_id: str | None = None
    if version >= 3:
        transactional_id, pos = wire.read_string(body, pos, end, "transactional id")
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, pos)
    (topics,) = _INT32.unpack_from(body, pos + 6)
    pos += 10
    if topics < 0 or topics * 6 > end - pos:
        wire.bad_length("topics", topics)
    partitions: list[tuple[str, int, memoryview]] = []
    for _ in range(topics):
        topic, pos = wire.read_string(body, pos, end, "topic")
        if topic is None:
            wire.bad_null("topic")
        (count,) = _INT32.unpack_from(body, pos)
        pos += 4
        if count < 0 or count * 8 > end - pos:
            wire.bad_length("partitions", count)
        for _ in range(count):
            index, size = _INDEX_SIZE.unpack_from(body, pos)
            pos += 8
            stop = pos + max(size, 0)
            if size < -1 or stop > end:
                wire.bad_length("records", size)
            partitions.append((topic, index, body[pos:stop]))
            pos = stop
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def _parse_flexible(body: memoryview) -> ProduceRequest:
    end = len(body)
    transactional_id, pos = wire.read_compact_string(body, 0, end, "transactional id")
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, pos)
    topics, pos = wire.read_uvarint(body, pos + 6)
    if topics == 0 or (topics - 1) * 3 > end - pos:
        wire.bad_length("topics", topics - 1)
    partitions: list[tuple[str, int, memoryview]] = []
    for _ in range(topics - 1):
        topic, pos = wire.read_compact_string(body, pos, end, "topic")
        if topic is None:
            wire.bad_null("topic")
        count, pos = wire.read_uvarint(body, pos)
        if count == 0 or (count - 1) * 6 > end - pos:
            wire.bad_length("partitions", count - 1)
        for _ in range(count - 1):
            (index,) = _INT32.unpack_from(body, pos)
            size, pos = wire.read_uvarint(body, pos + 4)
            stop = pos + max(size - 1, 0)
            if stop > end:
                wire.bad_length("records", size - 1)
            partitions.append((topic, index, body[pos:stop]))
            pos = stop + 1 if body[stop] == 0 else wire.skip_tags(body, stop, end)
        pos = pos + 1 if body[pos] == 0 else wire.skip_tags(body, pos, end)
    wire.skip_tags(body, pos, end)
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def encode_response(
    version: int,
    correlation_id: int,
    results: Iterable[PartitionOutcome],
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Write the complete response frame; results of one topic that follow each other are put together."""
    topics = [(topic, list(outcomes)) for topic, outcomes in groupby(results, key=attrgetter("topic"))]
    out = bytearray(_RESPONSE_HEAD.pack(0, correlation_id))
    if version >= _FLEXIBLE:
        _flexible_response(out, version, topics, throttle_ms, node_endpoints)
    else:
        _classic_response(out, version, topics, throttle_ms)
    _INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def _classic_response(
    out: bytearray, version: int, topics: list[tuple[str, list[PartitionOutcome]]], throttle_ms: int
) -> None:
    out += _INT32.pack(len(topics))
    for topic, outcomes in topics:
        out += wire.string(topic)
        out += _INT32.pack(len(outcomes))
        for outcome in outcomes:
            _outcome(out, version, outcome)
            if version >= 8:
                out += _INT32.pack(len(outcome.record_errors))
                for index, text in outcome.record_errors:
                    out += _INT32.pack(index)
                    out += wire.string(text)
                out += wire.string(outcome.error_message)
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
    topics: list[tuple[str, list[PartitionOutcome]]],
    throttle_ms: int,
    node_endpoints: Sequence[NodeEndpoint],
) -> None:
    out.append(0)  # the header's tagged fields
    out += wire.uvarint(len(topics) + 1)
    for topic, outcomes in topics:
        out += wire.compact_string(topic)
        out += wire.uvarint(len(outcomes) + 1)
        for outcome in outcomes:
            _outcome(out, version, outcome)
            out += wire.uvarint(len(outcome.record_errors) + 1)
            for index, text in outcome.record_errors:
                out += _INT32.pack(index)
                out += wire.compact_string(text)
                out.append(0)
            out += wire.compact_string(outcome.error_message)
            if version >= 10 and outcome.current_leader is not None:
                out += b"\1\0\x09"  # one tagged field, tag 0, nine bytes
                out += _LEADER.pack(*outcome.current_leader)
            out.append(0)  # ends the partition, or the struct of the leader inside its tagged field
        out.append(0)
    out += _INT32.pack(throttle_ms)
    wire.append_node_endpoints(out, node_endpoints if version >= 10 else ())
