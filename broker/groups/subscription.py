"""Reads the topics to which a consumer group is subscribed from its members' metadata (the consumer protocol).

Where that cannot be known, the group counts as subscribed to every topic: its offsets are not to be lost.
"""

import struct
from collections.abc import Collection

from logyard.broker.groups.members import Group

CONSUMER = "consumer"
# Of all members, without those that are the same as of the member before: they are read in one turn of the event loop.
TOPICS_MAX = 100_000


def subscribed_of(group: Group, topics: Collection[str]) -> set[str]:
    """Return those of the topics to which a member is subscribed.

    The members' metadata are read once.
    """
    found = subscribed(group)
    return set(topics) if found is None else found & set(topics)


def subscribed(group: Group) -> set[str] | None:
    """Return the topics to which a member of the group is subscribed.

    None: not known, since they use another protocol, have not agreed on one yet, or one sends what cannot be read; or
    since it would take too long: metadata may have millions of topics, each of two bytes. Members mostly have the same
    ones, which are read once.
    """
    if not group.members:
        return set()
    if group.protocol_type != CONSUMER or group.protocol is None:
        return None
    found: set[str] = set()
    left, already_read = TOPICS_MAX, b""
    for member in group.members.values():
        metadata = member.metadata(group.protocol)
        if already_read and metadata.startswith(already_read):
            continue
        read = topics_of(metadata, left)
        if read is None:
            return None
        topics, size = read
        found.update(topics)
        left, already_read = left - len(topics), metadata[:size]
    return found


def topics_of(metadata: bytes, topics_max: int) -> tuple[list[str], int] | None:
    """Return the topics of a ConsumerProtocolSubscription (version, array of strings), and how many bytes that is.

    None if it cannot be read, or has more topics than that.
    """
    try:
        (count,) = struct.unpack_from(">i", metadata, 2)
        if not 0 <= count <= topics_max:
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
    return topics, at
