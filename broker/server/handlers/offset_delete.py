"""OffsetDelete (47): deletes committed offsets of topics to which no member of the group is subscribed (KIP-496).

Partitions that the broker does not know are refused with UNKNOWN_TOPIC_OR_PARTITION, as by Kafka.
"""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    readable = authorization.topics(services, request, [topic.name for topic in message.topics])
    named = [topic for topic in message.topics if topic.name in readable]
    asked = [TopicPartition(topic.name, p.partition_index) for topic in named for p in topic.partitions]
    known = [tp for tp in asked if services.metadata.partition(tp) is not None]
    code, answers = await services.groups.commits.delete_offsets(message.group_id, known)
    if code is not ErrorCode.NONE:
        return {"error_code": int(code)}
    answered = dict(zip(known, answers, strict=True))

    def told(topic: str, partition: int) -> ErrorCode:
        if topic not in readable:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return answered.get(TopicPartition(topic, partition), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    return {
        "error_code": 0,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": p.partition_index,
                        "error_code": int(told(topic.name, p.partition_index)),
                    }
                    for p in topic.partitions
                ],
            }
            for topic in message.topics
        ],
    }


HANDLER = Handler(message=handle)
