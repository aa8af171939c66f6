"""AlterPartitionReassignments (45): moves partitions to other replicas; null cancels a move (KIP-455)."""

from typing import Any

from logyard.broker.controller.events import AlterReassignments
from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    targets = tuple(
        (TopicPartition(topic.name, p.partition_index), None if p.replicas is None else tuple(p.replicas))
        for topic in message.topics
        for p in topic.partitions
    )
    outcomes = await services.controller.ask(AlterReassignments(targets))
    return {
        "error_code": 0,
        "error_message": None,
        "responses": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": p.partition_index,
                        "error_code": int(outcome.error),
                        "error_message": outcome.message,
                    }
                    for p in topic.partitions
                    for outcome in (outcomes[TopicPartition(topic.name, p.partition_index)],)
                ],
            }
            for topic in message.topics
        ],
    }


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    refused = {"error_code": int(code), "error_message": text}
    responses = [
        {"name": t.name, "partitions": [{"partition_index": p.partition_index, **refused} for p in t.partitions]}
        for t in message.topics
    ]
    return {**refused, "responses": responses}


HANDLER = Handler(message=handle, error=error)
