"""Reads the topics to which a consumer group is subscribed from its members' metadata (the consumer protocol)."""

import struct

from logyard.broker.groups.members import Group

CONSUMER = "consumer"


def is_subscribed(group: Group, topic: str) -> bool:
    """Whether a member is subscribed to the topic. In a group of another protocol type each member may be."""
    if group.protocol_type != CONSUMER:
        return bool(group.members)
    return any(topic in _topics(member.metadata(group.protocol)) for member in group.members.values())


def subscribed(group: Group) -> set[str]:
    """Return the topics to which a member of a consumer group is subscribed."""
    return {topic for member in group.members.values() for topic in _topics(member.metadata(group.protocol))}


def _topics(metadata: bytes) -> list[str]:
    """Return the topics of a ConsumerProtocolSubscription (version, array of strings); none if it cannot be parsed."""
    try:
        (count,) = struct.unpack_from(">i", metadata, 2)
        at, topics = 6, []
        for _ in range(count):
            (size,) = struct.unpack_from(">H", metadata, at)  # unsigned, so that `at` grows in each turn
            topics.append(metadata[at + 2 : at + 2 + size].decode())
            at += 2 + size
    except (struct.error, UnicodeDecodeError):
        return []
    return topics
