"""OffsetDelete (47): deletes committed offsets of topics to which no member of the group is subscribed (KIP-496).

Partitions that the broker does not know are refused with UNKNOWN_TOPIC_OR_PARTITION, as by Kafka.
"""

from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.server import authorization
from logyard.broker.server.api import Handler
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    readable = authorization.topics(services, request, [topic.name for topic in message.topics])
    pauses = Pauses(services)
    known: dict[TopicPartition, None] = {}
    async for topic in pauses.between(message.topics):
        async for p in pauses.between(topic.partitions if topic.name in readable else ()):
            tp = TopicPartition(topic.name, p.partition_index)
            if services.metadata.partition(tp) is not None:
                known[tp] = None
    code, answers = await services.groups.commits.delete_offsets(message.group_id, list(known))
    if code is not ErrorCode.NONE:
        return {"error_code": int(code)}
    answered = dict(zip(known, answers, strict=True))
    topics = []
    async for topic in pauses.between(message.topics):
        is_readable = topic.name in readable
        otherwise = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_readable else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partitions = []
        async for p in pauses.between(topic.partitions):
            told = answered.get(TopicPartition(topic.name, p.partition_index), otherwise)
            partitions.append({"partition_index": p.partition_index, "error_code": int(told)})
        topics.append({"name": topic.name, "partitions": partitions})
    return {"error_code": 0, "topics": topics}


HANDLER = Handler(message=handle)
