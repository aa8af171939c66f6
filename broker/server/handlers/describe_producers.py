"""DescribeProducers (61): a replica's idempotent producers and their open transactions (KIP-664, facts §17.6)."""

from collections.abc import Container
from typing import Any

from logyard.broker.controller.topics.topics import name_problem
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    # What is asked for twice is told once, other than by Kafka: see describe_groups.py.
    asked: dict[str, dict[int, None]] = {}
    pauses, topics = Pauses(services), []
    for topic in message.topics:
        indexes = asked.setdefault(topic.name, {})
        async for index in pauses.between(topic.partition_indexes):
            indexes[index] = None
        await pauses.after(1)
    legal = (name for name in asked if name_problem(name) is None)
    readable = await authorization.topics_of_many(services, request, pauses, legal)
    for name, of_topic in asked.items():
        partitions = [await _partition(services, readable, pauses, name, index) for index in of_topic]
        topics.append({"name": name, "partitions": partitions})
    return {"topics": topics}


async def _partition(
    services: Services, readable: Container[str], pauses: Pauses, topic: str, index: int
) -> dict[str, Any]:
    await pauses.after(1)
    try:
        problem = name_problem(topic)
        if problem is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if topic not in readable:
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        log = services.replicas.hosted.find(TopicPartition(topic, index)).readable_log(-1, only_leader=False)
    except ApiError as refusal:
        return {"partition_index": index, "error_code": int(refusal.code), "error_message": refusal.message}
    producers = []
    for entry in list(log.producers.entries.values()):
        producers.append(
            {
                "producer_id": entry.producer_id,
                "producer_epoch": entry.epoch,
                "last_sequence": entry.last_sequence,
                "last_timestamp": entry.last_timestamp,
                "coordinator_epoch": entry.coordinator_epoch,
                "current_txn_start_offset": entry.txn_first_offset,
            }
        )
        await pauses.after(1)
    return {"partition_index": index, "error_code": 0, "active_producers": producers}


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {
        "topics": [
            {
                "name": t.name,
                "partitions": [{"partition_index": p, "error_code": int(code)} for p in t.partition_indexes],
            }
            for t in message.topics
        ]
    }


HANDLER = Handler(message=handle, error=error)
