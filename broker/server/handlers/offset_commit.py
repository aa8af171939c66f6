"""OffsetCommit (8): v1 adds generation and member, v6 the leader epoch, v7 static members; v2 to v4 have a retention.

Each partition that the broker does not know is refused with UNKNOWN_TOPIC_OR_PARTITION; the others are committed.
Version 0 writes to ZooKeeper on any broker, without a coordinator (facts §16).
"""

from collections.abc import Container, Mapping
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.groups import zookeeper_offsets
from logyard.broker.groups.events import OffsetCommit
from logyard.broker.model import TopicPartition
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    version = request.api_version
    readable = authorization.topics(services, request, [topic.name for topic in message.topics])
    if version == 0:
        return await _commit_to_zookeeper(services, message, readable)
    now_ms = services.clock.now_ms()
    retention_ms = message.retention_time_ms if 2 <= version <= 4 else -1
    commits = [
        OffsetCommit(
            topic.name,
            p.partition_index,
            p.committed_offset,
            p.committed_leader_epoch if version >= 6 else -1,
            p.committed_metadata or "",
            p.commit_timestamp if version == 1 and p.commit_timestamp >= 0 else now_ms,
            now_ms + retention_ms if retention_ms >= 0 else -1,
        )
        for topic in message.topics
        if topic.name in readable
        for p in topic.partitions
    ]
    known = [c for c in commits if services.metadata.partition(TopicPartition(c.topic, c.partition)) is not None]
    codes = await services.groups.commits.commit(
        message.group_id,
        message.member_id,
        message.group_instance_id if version >= 7 else None,
        message.generation_id_or_member_epoch,
        known,
    )
    answered = {(c.topic, c.partition): code for c, code in zip(known, codes, strict=True)}
    return _answer(message, answered, readable)


async def _commit_to_zookeeper(services: Services, message: Any, readable: Container[str]) -> Fields:
    codes: dict[tuple[str, int], ErrorCode] = {}
    offsets: dict[TopicPartition, int] = {}
    too_long = services.config.int("offset.metadata.max.bytes")
    for topic in message.topics:
        if topic.name not in readable:
            continue
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            if services.metadata.partition(tp) is None:
                continue
            if len(p.committed_metadata or "") > too_long:
                codes[tp.topic, tp.partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                offsets[tp] = p.committed_offset
    written = await zookeeper_offsets.commit(services.zk, message.group_id, offsets)
    return _answer(message, codes | {(tp.topic, tp.partition): code for tp, code in written.items()}, readable)


def _answer(message: Any, codes: Mapping[tuple[str, int], ErrorCode], readable: Container[str]) -> Fields:
    """Every partition of the request; those without a code are refused or unknown."""

    def told(topic: str, partition: int) -> int:
        if topic not in readable:
            return int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return int(codes.get((topic, partition), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": p.partition_index, "error_code": told(topic.name, p.partition_index)}
                    for p in topic.partitions
                ],
            }
            for topic in message.topics
        ]
    }


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {
        "topics": [
            {
                "name": t.name,
                "partitions": [{"partition_index": p.partition_index, "error_code": int(code)} for p in t.partitions],
            }
            for t in message.topics
        ]
    }


HANDLER = Handler(message=handle, error=error)
