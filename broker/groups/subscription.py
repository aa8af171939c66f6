"""Which topics the members of a consumer group have named in their subscriptions (the consumer protocol's metadata)."""

import struct

from logyard.broker.groups.members import Group

CONSUMER = "consumer"


def is_subscribed(group: Group, topic: str) -> bool:
    """Whether a member of the group names the topic; of a group that is not of consumers nobody can tell: any may."""
    if group.protocol_type != CONSUMER:
        return bool(group.members)
    return any(topic in _topics(member.metadata(group.protocol)) for member in group.members.values())


def subscribed(group: Group) -> set[str]:
    """Every topic that a member of a consumer group names."""
    return {topic for member in group.members.values() for topic in _topics(member.metadata(group.protocol))}


def _topics(metadata: bytes) -> list[str]:
    """Topics of a ConsumerProtocolSubscription: version, then an array of strings; unreadable means none."""
    try:
        (count,) = struct.unpack_from(">i", metadata, 2)
        at, topics = 6, []
        for _ in range(count):
            (size,) = struct.unpack_from(">H", metadata, at)  # unsigned: every turn gets on, whatever it says
            topics.append(metadata[at + 2 : at + 2 + size].decode())
            at += 2 + size
    except (struct.error, UnicodeDecodeError):
        return []
    return topics
