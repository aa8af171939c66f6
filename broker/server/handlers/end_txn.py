"""EndTxn (26): a client commits or aborts its transaction (facts §17.5)."""

from typing import Any

from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
from logyard.broker.server.transactional import answered_since, require_write
from logyard.broker.transactions.events import Producer

PRODUCER_FENCED_SINCE = 2


async def handle(services: Services, request: Request, message: Any) -> Fields:
    require_write(services, request, message.transactional_id)
    producer = Producer(message.producer_id, message.producer_epoch)
    code = await services.transactions.end(message.transactional_id, producer, commits=message.committed)
    return {"error_code": int(answered_since(PRODUCER_FENCED_SINCE, request, code))}


HANDLER = Handler(message=handle)
