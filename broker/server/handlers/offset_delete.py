"""OffsetDelete (47): deletes committed offsets of topics to which no member of the group is subscribed (KIP-496)."""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    wanted = [(topic.name, p.partition_index) for topic in message.topics for p in topic.partitions]
    code, answers = await services.groups.commits.delete_offsets(message.group_id, wanted)
    if code is not ErrorCode.NONE:
        return {"error_code": int(code)}
    answered = dict(zip(wanted, answers, strict=True))
    return {
        "error_code": 0,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": p.partition_index,
                        "error_code": int(answered[topic.name, p.partition_index]),
                    }
                    for p in topic.partitions
                ],
            }
            for topic in message.topics
        ],
    }


HANDLER = Handler(message=handle)
