"""OffsetForLeaderEpoch (23): the end of an epoch in the leader's log (KIP-101, KIP-320); v3 adds a replica id."""

from collections.abc import Container
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.replication.events import EpochQuery
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import PARTS_AT_ONCE, Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.rights_table import RIGHTS
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    pauses = Pauses(services)
    described: Container[str] = authorization.EVERYTHING
    if not authorization.may(services, request, RIGHTS[request.api_key].cluster, tells=False):
        described = await authorization.topics_of_many(services, request, pauses, (t.topic for t in message.topics))
    queries = []
    for topic in message.topics:
        for p in topic.partitions if topic.topic in described else ():
            await pauses.after(1)
            current = p.current_leader_epoch if request.api_version >= 2 else -1
            queries.append(EpochQuery(TopicPartition(topic.topic, p.partition), p.leader_epoch, current))
    topics: dict[str, list[Fields]] = {}
    for start in range(0, len(queries), PARTS_AT_ONCE):
        portion = queries[start : start + PARTS_AT_ONCE]
        for answer in services.replicas.lookups.offsets_for_leader_epoch(portion):
            topics.setdefault(answer.tp.topic, []).append(
                {
                    "error_code": int(answer.error),
                    "partition": answer.tp.partition,
                    "leader_epoch": answer.epoch,
                    "end_offset": answer.end_offset,
                }
            )
        await pauses.after(len(portion))
    answered = [{"topic": name, "partitions": partitions} for name, partitions in topics.items()]
    refused = []
    async for topic in pauses.between(message.topics):
        if topic.topic not in described:
            refused.append(_refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            await pauses.after(len(topic.partitions))
    return {"topics": [*answered, *refused]}


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"topics": [_refused(topic, code) for topic in message.topics]}


def _refused(topic: Any, code: ErrorCode) -> Fields:
    partitions = [{"partition": p.partition, "error_code": int(code)} for p in topic.partitions]
    return {"topic": topic.topic, "partitions": partitions}


HANDLER = Handler(message=handle, error=error)
