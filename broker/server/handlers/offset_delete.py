"""OffsetDelete (47): deletes committed offsets of topics to which no member of the group is subscribed (KIP-496).

Partitions that the broker does not know are refused with UNKNOWN_TOPIC_OR_PARTITION, as by Kafka.
"""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.server import authorization, partition_codes
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    pauses = Pauses(services)
    readable = await authorization.topics_of_many(services, request, pauses, (t.name for t in message.topics))
    known = {tp: None async for tp, _ in partition_codes.known(services, pauses, message, readable)}
    code, answers = await services.groups.commits.delete_offsets(message.group_id, list(known))
    if code is not ErrorCode.NONE:
        return {"error_code": int(code)}
    answered = dict(zip(known, answers, strict=True))
    return {"error_code": 0, "topics": await partition_codes.answered(pauses, message, readable, answered)}


HANDLER = Handler(message=handle)
