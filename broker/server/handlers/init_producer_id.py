"""InitProducerId (22): gives an idempotent producer a new id with epoch 0. Transactions are not served yet."""

from typing import Any

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    if message.transactional_id == "":
        raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty: leave it out, or name one")
    if message.transactional_id is not None:
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not served by this broker")
    producer_id = await services.producer_ids.next()
    return {"error_code": 0, "producer_id": producer_id, "producer_epoch": 0}


def error(message: Any, version: int, code: ErrorCode, text: str | None) -> Fields:
    return {"error_code": int(code), "producer_id": -1, "producer_epoch": -1}


HANDLER = Handler(message=handle, error=error)
