"""ListPartitionReassignments (46): the running moves. It goes through the controller's queue, so it also tests that."""

from typing import Any

from logyard.broker.controller.events import ListReassignments
from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    pauses = Pauses(services)
    wanted: list[TopicPartition] | None = None
    if message.topics is not None:
        wanted = list(await pauses.partitions((t.name, t.partition_indexes) for t in message.topics))
    moving = await services.controller.ask(ListReassignments(wanted))
    topics: dict[str, list[dict[str, Any]]] = {}
    async for tp, assignment in pauses.between(moving.items()):
        topics.setdefault(tp.topic, []).append(
            {
                "partition_index": tp.partition,
                "replicas": list(assignment.replicas),
                "adding_replicas": list(assignment.adding),
                "removing_replicas": list(assignment.removing),
            }
        )
    return {
        "error_code": 0,
        "error_message": None,
        "topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
    }


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"error_code": int(code), "error_message": text, "topics": []}


HANDLER = Handler(message=handle, error=error)
