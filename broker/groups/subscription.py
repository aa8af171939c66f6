"""Reads the topics to which a consumer group is subscribed from its members' metadata (the consumer protocol).

Where that cannot be known, the group counts as subscribed to every topic: its offsets are not to be lost.
"""

import struct
from collections.abc import Collection

from logyard.broker.groups.members import Group

CONSUMER = "consumer"


def subscribed_of(group: Group, topics: Collection[str]) -> set[str]:
    """Return those of the topics to which a member is subscribed.

    The members' metadata are read once. They have as many topics as clients like, each of two bytes at least.
    """
    found = subscribed(group)
    return set(topics) if found is None else found & set(topics)


def subscribed(group: Group) -> set[str] | None:
    """Return the topics to which a member of the group is subscribed.

    None: not known, since they use another protocol, have not agreed on one yet, or one sends what cannot be read.
    """
    if not group.members:
        return set()
    if group.protocol_type != CONSUMER or group.protocol is None:
        return None
    found: set[str] = set()
    for member in group.members.values():
        topics = topics_of(member.metadata(group.protocol))
        if topics is None:
            return None
        found.update(topics)
    return found


def topics_of(metadata: bytes) -> list[str] | None:
    """Return the topics of a ConsumerProtocolSubscription (version, array of strings); None if it cannot be read."""
    try:
        (count,) = struct.unpack_from(">i", metadata, 2)
        if count < 0:
            return None
        at, topics = 6, []
        for _ in range(count):
            (size,) = struct.unpack_from(">H", metadata, at)  # unsigned, so that `at` grows in each turn
            at += 2 + size
            if at > len(metadata):
                return None
            topics.append(metadata[at - size : at].decode(errors="replace"))
    except struct.error:
        return None
    return topics
