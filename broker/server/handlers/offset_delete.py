"""OffsetDelete (47): deletes committed offsets of topics to which no member of the group is subscribed (KIP-496)."""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    readable = authorization.topics(services, request, [topic.name for topic in message.topics])
    wanted = [(t.name, p.partition_index) for t in message.topics if t.name in readable for p in t.partitions]
    code, answers = await services.groups.commits.delete_offsets(message.group_id, wanted)
    if code is not ErrorCode.NONE:
        return {"error_code": int(code)}
    answered = dict(zip(wanted, answers, strict=True))
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return {
        "error_code": 0,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": p.partition_index,
                        "error_code": int(answered.get((topic.name, p.partition_index), refused)),
                    }
                    for p in topic.partitions
                ],
            }
            for topic in message.topics
        ],
    }


HANDLER = Handler(message=handle)
