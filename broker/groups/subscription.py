"""Reads the topics to which a consumer group is subscribed from its members' metadata (the consumer protocol)."""

import struct
from collections.abc import Collection

from logyard.broker.groups.members import Group

CONSUMER = "consumer"


def subscribed_of(group: Group, topics: Collection[str]) -> set[str]:
    """Return those of the topics to which a member is subscribed: in a group of another protocol type it may be to all.

    The members' metadata are read once. They have as many topics as clients like, each of two bytes at least.
    """
    if group.protocol_type != CONSUMER:
        return set(topics) if group.members else set()
    return subscribed(group) & set(topics)


def subscribed(group: Group) -> set[str]:
    """Return the topics to which a member of a consumer group is subscribed."""
    return {topic for member in group.members.values() for topic in topics_of(member.metadata(group.protocol))}


def topics_of(metadata: bytes) -> list[str]:
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
