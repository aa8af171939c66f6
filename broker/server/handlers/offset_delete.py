"""OffsetDelete (47): forgets committed offsets of topics no member of the group is subscribed to (KIP-496)."""

import struct
from typing import Any

from logyard.broker.coordinator.members import Group
from logyard.broker.errors import ErrorCode
from logyard.broker.server.request import Fields, Handler, Request
from logyard.broker.server.services import Services


async def handle(services: Services, request: Request, message: Any) -> Fields:
    wanted = [(topic.name, p.partition_index) for topic in message.topics for p in topic.partitions]
    code, answers = await services.groups.delete_offsets(message.group_id, wanted, is_subscribed)
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


def is_subscribed(group: Group, topic: str) -> bool:
    """Whether a member of a consumer group names the topic in its subscription (the consumer protocol's metadata)."""
    if group.protocol_type != "consumer":
        return bool(group.members)
    return any(topic in _subscription(member.metadata(group.protocol)) for member in group.members.values())


def _subscription(metadata: bytes) -> list[str]:
    """Topics of a ConsumerProtocolSubscription: version, then an array of strings; unreadable means none."""
    try:
        (count,) = struct.unpack_from(">i", metadata, 2)
        at, topics = 6, []
        for _ in range(count):
            (size,) = struct.unpack_from(">h", metadata, at)
            topics.append(metadata[at + 2 : at + 2 + size].decode())
            at += 2 + size
    except (struct.error, UnicodeDecodeError):
        return []
    return topics


HANDLER = Handler(47, "OffsetDelete", message=handle)
