"""DeleteRecords (21): moves the log start of partitions that this broker leads; offset -1 means the high watermark
(KIP-107)."""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import PARTS_OF_A_FILE, Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def handle(services: Services, request: Request, message: Any) -> Fields:
    pauses, lookups = Pauses(services), services.replicas.lookups
    may_delete = await authorization.topics_of_many(services, request, pauses, (t.name for t in message.topics))
    # Of a partition that is named twice the last offset counts, as in Kafka.
    wanted: dict[TopicPartition, int] = {}
    async for topic in pauses.between(message.topics):
        async for p in pauses.between(topic.partitions if topic.name in may_delete else ()):
            wanted[TopicPartition(topic.name, p.partition_index)] = p.offset
    results, waiting = [], []
    for tp, offset in wanted.items():
        result = lookups.delete_records(tp, offset)
        results.append(result)
        if result.waits:
            waiting.append(result)
        await pauses.after(1 if result.wanted < 0 else PARTS_OF_A_FILE)
    others = lookups.all_deleted(waiting, message.timeout_ms)
    if others is not None:
        await others
    topics: dict[str, list[Fields]] = {}
    for result in results:
        part = _part(result.tp.partition, result.error, result.low_watermark)
        topics.setdefault(result.tp.topic, []).append(part)
        await pauses.after(1)
    answered = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    refused = []
    async for topic in pauses.between(message.topics):
        if topic.name not in may_delete:
            partitions = [_part(p.partition_index, REFUSED) async for p in pauses.between(topic.partitions)]
            refused.append({"name": topic.name, "partitions": partitions})
    return {"topics": [*answered, *refused]}


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {
        "topics": [
            {"name": topic.name, "partitions": [_part(p.partition_index, code) for p in topic.partitions]}
            for topic in message.topics
        ]
    }


def _part(index: int, code: ErrorCode, low_watermark: int = -1) -> Fields:
    return {"partition_index": index, "low_watermark": low_watermark, "error_code": int(code)}


HANDLER = Handler(message=handle, error=error)
