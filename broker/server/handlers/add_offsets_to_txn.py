"""AddOffsetsToTxn (25): adds a group's partition of `__consumer_offsets` to a transaction (facts §17.4)."""

from typing import Any

from logyard.broker.model import OFFSETS_TOPIC, TopicPartition
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services
from logyard.broker.server.transactional import answered_since
from logyard.broker.transactions.events import Producer

PRODUCER_FENCED_SINCE = 2


async def handle(services: Services, request: Request, message: Any) -> Fields:
    offsets = TopicPartition(OFFSETS_TOPIC, services.groups.partition_for(message.group_id))
    producer = Producer(message.producer_id, message.producer_epoch)
    code = await services.transactions.add_partitions(message.transactional_id, producer, [offsets])
    return {"error_code": int(answered_since(PRODUCER_FENCED_SINCE, request, code))}


HANDLER = Handler(message=handle)
