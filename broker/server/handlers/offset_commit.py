"""OffsetCommit (8): v1 adds generation and member, v6 the leader epoch, v7 static members; v2 to v4 have a retention.

Each partition that the broker does not know is refused with UNKNOWN_TOPIC_OR_PARTITION; the others are committed, of
one that is named twice the last offset. Version 0 writes to ZooKeeper on any broker, without a coordinator (facts §16).
"""

from collections.abc import Container
from typing import Any

from logyard.broker.config.topic import LONG_MAX
from logyard.broker.errors import ErrorCode
from logyard.broker.groups import zookeeper_offsets
from logyard.broker.groups.events import OffsetCommit
from logyard.broker.model import TopicPartition
from logyard.broker.server import authorization, partition_codes
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    version = request.api_version
    pauses = Pauses(services)
    readable = await authorization.topics_of_many(services, request, pauses, (t.name for t in message.topics))
    if version == 0:
        return await _commit_to_zookeeper(services, message, readable, pauses)
    now_ms = services.clock.now_ms()
    retention_ms = message.retention_time_ms if 2 <= version <= 4 else -1
    # Old clients ask for the longest time there is, to keep their offsets for ever.
    expire_ms = min(now_ms + retention_ms, LONG_MAX) if retention_ms >= 0 else -1
    commits: dict[TopicPartition, OffsetCommit] = {}
    async for tp, p in partition_codes.known(services, pauses, message, readable):
        commits[tp] = OffsetCommit(
            tp.topic,
            tp.partition,
            p.committed_offset,
            p.committed_leader_epoch if version >= 6 else -1,
            p.committed_metadata or "",
            p.commit_timestamp if version == 1 and p.commit_timestamp >= 0 else now_ms,
            expire_ms,
        )
    codes = await services.groups.commits.commit(
        message.group_id,
        message.member_id,
        message.group_instance_id if version >= 7 else None,
        message.generation_id_or_member_epoch,
        list(commits.values()),
    )
    answered = dict(zip(commits, codes, strict=True))
    return {"topics": await partition_codes.answered(pauses, message, readable, answered)}


async def _commit_to_zookeeper(services: Services, message: Any, readable: Container[str], pauses: Pauses) -> Fields:
    codes: dict[TopicPartition, ErrorCode] = {}
    offsets: dict[TopicPartition, int] = {}
    too_long = services.config.int("offset.metadata.max.bytes")
    async for tp, p in partition_codes.known(services, pauses, message, readable):
        if len(p.committed_metadata or "") > too_long:
            codes[tp] = ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            offsets[tp] = p.committed_offset
    written = await zookeeper_offsets.commit(services.zk, message.group_id, offsets)
    return {"topics": await partition_codes.answered(pauses, message, readable, codes | written)}


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return partition_codes.refused(message, code)


HANDLER = Handler(message=handle, error=error)
