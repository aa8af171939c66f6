"""The follower's side of Fetch: encodes requests, and decodes answers without copying their records.

The requests of followers with topic ids, and the answers that have nothing unusual, are coded by hand: one of each goes
with nearly every record that is replicated. Everything else goes by the schema.
"""

import struct
import uuid
from itertools import groupby
from typing import Any, NamedTuple

from logyard.broker.errors import CorruptData
from logyard.broker.protocol import codec, primitives
from logyard.broker.protocol.fetch import API_KEY, FetchedPartition, FetchPartition, FetchRequest
from logyard.broker.protocol.schema import ZERO_UUID

_BY_HAND = 17
_REQUEST_HEAD = struct.Struct(">ihhi")
_FIELDS = struct.Struct(">iiibii")
_PARTITION = struct.Struct(">iiqiqiB")
# Two tags: of these only the second is written, the replica's id and epoch, which has no tags itself.
_REPLICA_TAG = struct.Struct(">BBBiqB")
_ANSWER_HEAD = struct.Struct(">iBihi")
# All fields before the records, without a list of aborted transactions.
_PLAIN = struct.Struct(">ihqqqBi")
_SIZE = struct.Struct(">i")


class FetchResponse(NamedTuple):
    """A Fetch answer; the records are slices of the frame."""

    correlation_id: int
    throttle_ms: int
    error_code: int
    session_id: int
    partitions: list[FetchedPartition]


def encode_request(version: int, correlation_id: int, client_id: str | None, request: FetchRequest) -> bytes:
    """Encode the complete request frame; partitions of one topic that follow each other become one entry.

    Topics need a name up to v12, an id from v13 on. Raises ValueError for values that do not fit.
    """
    if version == _BY_HAND and request.cluster_id is None and not request.forgotten and not request.rack_id:
        try:
            return _by_hand(correlation_id, client_id, request)
        except (struct.error, AttributeError, TypeError):
            pass  # the schema says what does not fit
    return _by_schema(version, correlation_id, client_id, request)


def _by_hand(correlation_id: int, client_id: str | None, request: FetchRequest) -> bytes:
    out = bytearray(_REQUEST_HEAD.pack(0, API_KEY, _BY_HAND, correlation_id))
    out += primitives.string(client_id)
    out.append(0)
    out += _FIELDS.pack(
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation,
        request.session_id,
        request.session_epoch,
    )
    by_topic = [(topic_id, list(each)) for topic_id, each in groupby(request.partitions, key=lambda p: p.topic_id)]
    out += primitives.uvarint(len(by_topic) + 1)
    for topic_id, partitions in by_topic:
        out += topic_id.bytes  # None does not fit
        out += primitives.uvarint(len(partitions) + 1)
        for p in partitions:
            out += _PARTITION.pack(
                p.partition,
                p.current_leader_epoch,
                p.fetch_offset,
                p.last_fetched_epoch,
                p.log_start_offset,
                p.max_bytes,
                0,
            )
        out.append(0)
    out += b"\x01\x01"  # no topics to forget, no rack
    if (request.replica_id, request.replica_epoch) == (-1, -1):
        out.append(0)
    else:
        out += _REPLICA_TAG.pack(1, 1, 13, request.replica_id, request.replica_epoch, 0)
    _SIZE.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def _by_schema(version: int, correlation_id: int, client_id: str | None, request: FetchRequest) -> bytes:
    fields = {
        "cluster_id": request.cluster_id,
        "replica_id": request.replica_id,
        "replica_state": {"replica_id": request.replica_id, "replica_epoch": request.replica_epoch},
        "max_wait_ms": request.max_wait_ms,
        "min_bytes": request.min_bytes,
        "max_bytes": request.max_bytes,
        "isolation_level": request.isolation,
        "session_id": request.session_id,
        "session_epoch": request.session_epoch,
        "topics": [
            {"topic": topic, "topic_id": topic_id, "partitions": [_partition(p) for p in partitions]}
            for (topic, topic_id), partitions in groupby(request.partitions, key=lambda p: (p.topic, p.topic_id))
        ],
        "forgotten_topics_data": [
            {"topic": topic, "topic_id": topic_id, "partitions": [index for *_, index in forgotten]}
            for (topic, topic_id), forgotten in groupby(request.forgotten, key=lambda f: f[:2])
        ],
        "rack_id": request.rack_id,
    }
    return codec.encode_request(API_KEY, version, correlation_id, client_id, fields)


def _partition(p: FetchPartition) -> dict[str, Any]:
    return {
        "partition": p.partition,
        "current_leader_epoch": p.current_leader_epoch,
        "fetch_offset": p.fetch_offset,
        "last_fetched_epoch": p.last_fetched_epoch,
        "log_start_offset": p.log_start_offset,
        "partition_max_bytes": p.max_bytes,
    }


def decode_response(version: int, frame: memoryview) -> FetchResponse:
    """Decode a response frame (without its size field). Raises CorruptData."""
    if version == _BY_HAND:
        try:
            plain = _plain_response(frame)
        except (*primitives.MALFORMED, CorruptData):
            plain = None  # the schema says what is wrong
        if plain is not None:
            return plain
    correlation_id, body = codec.decode_response(API_KEY, version, frame)
    partitions = [
        _fetched(topic.topic if version < 13 else None, topic.topic_id, p)
        for topic in body.responses
        for p in topic.partitions
    ]
    return FetchResponse(correlation_id, body.throttle_time_ms, body.error_code, body.session_id, partitions)


def _plain_response(frame: memoryview) -> FetchResponse | None:
    """Decode an answer without tagged fields, aborted transactions and nulls; None for any other.

    Raises CorruptData and errors of MALFORMED, where the schema may still find a good answer.
    """
    correlation_id, header_tags, throttle_ms, error_code, session_id = _ANSWER_HEAD.unpack_from(frame)
    if header_tags:
        return None
    topics, pos = primitives.read_uvarint(frame, _ANSWER_HEAD.size)
    end = len(frame)
    partitions: list[FetchedPartition] = []
    for _ in range(topics - 1):
        if pos + 16 > end:
            return None
        topic_id = primitives.uuid_from(bytes(frame[pos : pos + 16]))
        known_id = topic_id if topic_id.int else None
        count, pos = primitives.read_uvarint(frame, pos + 16)
        for _ in range(count - 1):
            index, error, watermark, stable, start, aborted, preferred = _PLAIN.unpack_from(frame, pos)
            if aborted:
                return None
            size, pos = frame[pos + _PLAIN.size], pos + _PLAIN.size + 1
            if size > 127:
                size, pos = primitives.read_uvarint_rest(frame, pos, size)
            stop = pos + size - 1
            if not size or stop >= end or frame[stop]:
                return None
            partitions.append(
                FetchedPartition(
                    None,
                    known_id,
                    index,
                    error,
                    watermark,
                    frame[pos:stop],
                    stable,
                    start,
                    None,
                    preferred,
                )
            )
            pos = stop + 1
        if not count or frame[pos]:
            return None
        pos += 1
    if not topics or frame[pos]:
        return None
    return FetchResponse(correlation_id, throttle_ms, error_code, session_id, partitions)


def _fetched(topic: str | None, topic_id: uuid.UUID, p: Any) -> FetchedPartition:
    aborted = p.aborted_transactions
    diverging, leader, snapshot = p.diverging_epoch, p.current_leader, p.snapshot_id
    return FetchedPartition(
        topic,
        None if topic_id == ZERO_UUID else topic_id,
        p.partition_index,
        p.error_code,
        p.high_watermark,
        b"" if p.records is None else p.records,
        p.last_stable_offset,
        p.log_start_offset,
        None if aborted is None else [(each.producer_id, each.first_offset) for each in aborted],
        p.preferred_read_replica,
        None if diverging.epoch < 0 and diverging.end_offset < 0 else (diverging.epoch, diverging.end_offset),
        None if leader.leader_id < 0 and leader.leader_epoch < 0 else (leader.leader_id, leader.leader_epoch),
        None if snapshot.epoch < 0 and snapshot.end_offset < 0 else (snapshot.end_offset, snapshot.epoch),
    )
