"""ControlledShutdown (7), between brokers: the controller moves leadership off a broker that is about to stop."""

from typing import Any

from logyard.broker.controller.events import ControlledShutdown
from logyard.broker.errors import ErrorCode
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    epoch = message.broker_epoch if request.api_version >= 2 else -1
    result = await services.controller.ask(ControlledShutdown(message.broker_id, epoch))
    return {
        "error_code": int(result.error),
        "remaining_partitions": [{"topic_name": tp.topic, "partition_index": tp.partition} for tp in result.remaining],
    }


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"error_code": int(code), "remaining_partitions": []}


HANDLER = Handler(message=handle, error=error)
