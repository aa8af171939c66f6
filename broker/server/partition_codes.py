"""Requests that name many partitions, each of which is answered with an error code: those of committed offsets."""

from collections.abc import AsyncIterator, Container, Mapping
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.server.large_answers import Pauses
from logyard.broker.server.request import Fields
from logyard.broker.server.services import Services


async def known(
    services: Services, pauses: Pauses, message: Any, readable: Container[str]
) -> AsyncIterator[tuple[TopicPartition, Any]]:
    """Yield the partitions of readable topics that this broker knows, with what the request says of them."""
    for topic in message.topics:
        await pauses.after(1)
        for p in topic.partitions if topic.name in readable else ():
            await pauses.after(1)
            tp = TopicPartition(topic.name, p.partition_index)
            if services.metadata.partition(tp) is not None:
                yield tp, p


async def answered(
    pauses: Pauses, message: Any, readable: Container[str], codes: Mapping[TopicPartition, ErrorCode]
) -> list[Fields]:
    """Return the topics of the answer, with every partition of the request; without a code it is refused or unknown."""
    topics: list[Fields] = []
    for topic in message.topics:
        await pauses.after(1)
        is_readable = topic.name in readable
        otherwise = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_readable else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partitions = []
        for p in topic.partitions:
            await pauses.after(1)
            code = codes.get(TopicPartition(topic.name, p.partition_index), otherwise)
            partitions.append({"partition_index": p.partition_index, "error_code": int(code)})
        topics.append({"name": topic.name, "partitions": partitions})
    return topics


def refused(message: Any, code: ErrorCode) -> Fields:
    """Return the fields of an answer in which all have this code."""
    topics = []
    for topic in message.topics:
        partitions = [{"partition_index": p.partition_index, "error_code": int(code)} for p in topic.partitions]
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}
