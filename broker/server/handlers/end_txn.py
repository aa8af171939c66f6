"""EndTxn (26): a client commits or aborts its transaction (facts §17.5). v5 raises the epoch, and answers with the pair
to go on with (KIP-890 part 2, facts §17.12)."""

from typing import Any

from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
from logyard.broker.server.transactional import answered_since
from logyard.broker.transactions.events import Producer

PRODUCER_FENCED_SINCE, RAISES_SINCE = 2, 5


async def handle(services: Services, request: Request, message: Any) -> Fields:
    producer = Producer(message.producer_id, message.producer_epoch)
    if request.api_version >= RAISES_SINCE:
        ended = await services.transactions.end_and_raise(message.transactional_id, producer, commits=message.committed)
        after = ended.producer
        return {
            "error_code": int(ended.error),
            "producer_id": after.producer_id,
            "producer_epoch": after.epoch,
        }
    code = await services.transactions.end(message.transactional_id, producer, commits=message.committed)
    return {"error_code": int(answered_since(PRODUCER_FENCED_SINCE, request, code))}


HANDLER = Handler(message=handle)
