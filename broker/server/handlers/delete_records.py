"""DeleteRecords (21): moves the log start of partitions that this broker leads; offset -1 means the high watermark
(KIP-107)."""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    wanted = [
        (TopicPartition(topic.name, p.partition_index), p.offset) for topic in message.topics for p in topic.partitions
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
    return {"topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()]}


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {
        "topics": [
            {
                "name": t.name,
                "partitions": [
                    {"partition_index": p.partition_index, "low_watermark": -1, "error_code": int(code)}
                    for p in t.partitions
                ],
            }
            for t in message.topics
        ]
    }


HANDLER = Handler(message=handle, error=error)
