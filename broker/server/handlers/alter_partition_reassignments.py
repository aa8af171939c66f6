"""AlterPartitionReassignments (45): moves partitions to other replicas; null cancels a move (KIP-455)."""

from typing import Any

from logyard.broker.controller.events import AlterReassignments
from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    pauses = Pauses(services)
    targets: list[tuple[TopicPartition, tuple[int, ...] | None]] = []
    async for topic in pauses.between(message.topics):
        async for p in pauses.between(topic.partitions):
            replicas = None if p.replicas is None else tuple(p.replicas)
            targets.append((TopicPartition(topic.name, p.partition_index), replicas))
    outcomes = await services.controller.ask(AlterReassignments(targets))
    responses = []
    async for topic in pauses.between(message.topics):
        partitions = []
        async for p in pauses.between(topic.partitions):
            outcome = outcomes[TopicPartition(topic.name, p.partition_index)]
            told = {"error_code": int(outcome.error), "error_message": outcome.message}
            partitions.append({"partition_index": p.partition_index, **told})
        responses.append({"name": topic.name, "partitions": partitions})
    return {"error_code": 0, "error_message": None, "responses": responses}


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    refused = {"error_code": int(code), "error_message": text}
    responses = [
        {"name": t.name, "partitions": [{"partition_index": p.partition_index, **refused} for p in t.partitions]}
        for t in message.topics
    ]
    return {**refused, "responses": responses}


HANDLER = Handler(message=handle, error=error)
