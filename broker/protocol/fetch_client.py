"""The follower's side of Fetch by the schema: encodes requests, and decodes answers without copying their records.

What has nothing unusual is coded by hand: `replication/fetch/plain_following.py`.
"""

import uuid
from itertools import groupby
from typing import Any, NamedTuple

from logyard.broker.protocol import codec
from logyard.broker.protocol.fetch import API_KEY, FetchedPartition, FetchPartition, FetchRequest
from logyard.broker.protocol.schema import ZERO_UUID


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
    correlation_id, body = codec.decode_response(API_KEY, version, frame)
    partitions = [
        _fetched(topic.topic if version < 13 else None, topic.topic_id, p)
        for topic in body.responses
        for p in topic.partitions
    ]
    return FetchResponse(correlation_id, body.throttle_time_ms, body.error_code, body.session_id, partitions)


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
