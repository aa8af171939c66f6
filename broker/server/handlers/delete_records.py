"""DeleteRecords (21): moves the log start of partitions that this broker leads; offset -1 means the high watermark
(KIP-107)."""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    may_delete = authorization.topics(services, request, [topic.name for topic in message.topics])
    wanted = [
        (TopicPartition(topic.name, p.partition_index), p.offset)
        for topic in message.topics
        if topic.name in may_delete
        for p in topic.partitions
    ]
    outcome = services.replicas.lookups.delete_records(wanted, timeout_ms=message.timeout_ms)
    results = outcome if isinstance(outcome, list) else await outcome
    topics: dict[str, list[Fields]] = {}
    for result in results:
        topics.setdefault(result.tp.topic, []).append(
            {
                "partition_index": result.tp.partition,
                "low_watermark": result.low_watermark,
                "error_code": int(result.error),
            }
        )
    answered = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    refused = [_refused(t, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for t in message.topics if t.name not in may_delete]
    return {"topics": [*answered, *refused]}


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"topics": [_refused(topic, code) for topic in message.topics]}


def _refused(topic: Any, code: ErrorCode) -> Fields:
    return {
        "name": topic.name,
        "partitions": [
            {"partition_index": p.partition_index, "low_watermark": -1, "error_code": int(code)}
            for p in topic.partitions
        ],
    }


HANDLER = Handler(message=handle, error=error)
