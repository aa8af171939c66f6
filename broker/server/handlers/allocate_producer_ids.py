"""AllocateProducerIds (67), between brokers: the controller gives out a block of producer ids (KIP-730, facts §17)."""

from typing import Any

from logyard.broker.controller.events import AllocateProducerIds
from logyard.broker.errors import ErrorCode
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    asked = AllocateProducerIds(message.broker_id, message.broker_epoch)
    block = await services.controller.ask(asked)
    return {"error_code": int(block.error), "producer_id_start": block.start, "producer_id_len": block.length}


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"error_code": int(code), "producer_id_start": -1, "producer_id_len": 0}


HANDLER = Handler(message=handle, error=error)
