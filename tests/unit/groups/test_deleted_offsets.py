"""What OffsetDelete, DeleteGroups and expiry may not take from a group that is in use."""

import struct

import pytest

from logyard.broker.clock import Now
from logyard.broker.errors import ErrorCode
from logyard.broker.groups import membership, subscription
from logyard.broker.groups.events import Join, Sync
from logyard.broker.groups.members import Group, Member
from tests.support.committing_world import RETENTION_MS, CommittingWorld
from tests.support.memory_offsets_log import MemoryOffsetsLog

NONE, SUBSCRIBED = ErrorCode.NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
TO_T = struct.pack(">hiH", 0, 1, 1) + b"t" + struct.pack(">i", -1)
UNREADABLE = [b"", b"{}", struct.pack(">hi", 0, -1), struct.pack(">hiH", 0, 1, 100) + b"x", struct.pack(">hi", 0, 2)]


def joining(protocol_type: str, metadata: bytes) -> Join:
    return Join("", None, "client", "/h", 10_000, 60_000, protocol_type, (("range", metadata),))


async def stable(protocol_type: str, metadata: bytes, **others: int) -> CommittingWorld:
    """A group that has committed 5 for topic t, and others, with one member."""
    world = await CommittingWorld(MemoryOffsetsLog(1)).led()
    for topic, offset in (("t", 5), *others.items()):
        assert await world.commit(offset, topic) is NONE
    joined = await world.groups.join("g", joining(protocol_type, metadata))
    assigned = {joined.member_id: b""}
    synced = await world.groups.sync("g", Sync(joined.member_id, None, joined.generation, assignments=assigned))
    assert (joined.error, synced.error) == (NONE, NONE)
    return world


async def test_what_members_that_are_no_consumers_have_committed_is_not_deleted() -> None:
    world = await stable("connect", TO_T)
    assert await world.groups.commits.delete_offsets("g", [("t", 0)]) == (ErrorCode.NON_EMPTY_GROUP, [])
    await world.agrees({"t": 5})
    await world.groups.close()


@pytest.mark.parametrize("metadata", UNREADABLE, ids=["empty", "json", "negative", "torn", "short"])
async def test_a_subscription_that_cannot_be_read_is_one_to_everything(metadata: bytes) -> None:
    """Else the offsets of a group that is in use could be deleted, and would expire."""
    world = await stable("consumer", metadata)
    assert await world.groups.commits.delete_offsets("g", [("t", 0)]) == (NONE, [SUBSCRIBED])
    world.clock.advance(RETENTION_MS / 1000 + 1)
    await world.groups.expire_offsets()
    await world.agrees({"t": 5})
    await world.groups.close()


async def test_a_subscription_of_very_many_topics_is_one_to_everything() -> None:
    """To read twenty million took seconds of the loop, for each request and each expiry."""
    count = subscription.TOPICS_MAX + 1
    world = await stable("consumer", struct.pack(">hi", 0, count) + bytes(2 * count), u=6)
    assert await world.groups.commits.delete_offsets("g", [("u", 0)]) == (NONE, [SUBSCRIBED])
    await world.agrees({"t": 5, "u": 6})
    await world.groups.close()


def test_many_members_with_the_same_topics_are_no_more_than_one() -> None:
    group = Group("g", protocol="range")
    many = subscription.TOPICS_MAX // 2
    listed = struct.pack(">hi", 0, many) + b"".join(struct.pack(">H5s", 5, b"%05d" % n) for n in range(many))
    for number in range(4):
        # What follows the topics (data of the user, owned partitions) differs.
        metadata = listed + struct.pack(">i", number) + bytes(number)
        group.add(Member(f"m{number}", None, "c", "h", 1, 1, "consumer", (("range", metadata),)))
    assert subscription.subscribed_of(group, ["00000", "other"]) == {"00000"}


async def test_what_nobody_is_subscribed_to_is_deleted_and_expires() -> None:
    world = await stable("consumer", TO_T, u=6, v=7)
    assert await world.groups.commits.delete_offsets("g", [("t", 0), ("u", 0)]) == (NONE, [SUBSCRIBED, NONE])
    await world.agrees({"t": 5, "v": 7})
    world.clock.advance(RETENTION_MS / 1000 + 1)
    await world.groups.expire_offsets()
    await world.agrees({"t": 5})
    await world.groups.close()


def test_while_the_first_members_join_a_group_is_subscribed_to_everything() -> None:
    """A group that comes back after its broker was restarted, say: its protocol is not chosen yet."""
    group = Group("g")
    membership.join(group, joining("consumer", TO_T), 1, "a", Now(0, 0), membership.Rules())
    assert subscription.subscribed_of(group, ["u"]) == {"u"}
    assert subscription.subscribed_of(Group("e"), ["u"]) == set()


async def test_the_group_without_a_name_is_deleted_too() -> None:
    world = await CommittingWorld(MemoryOffsetsLog(1)).led()
    assert await world.commit(5, group="") is NONE
    assert await world.groups.commits.delete_offsets("", [("t", 0)]) == (ErrorCode.INVALID_GROUP_ID, [])
    assert await world.groups.commits.delete_group("") is NONE
    assert world.names() == []
    await world.groups.close()


async def test_to_delete_nothing_deletes_no_group() -> None:
    world = await CommittingWorld(MemoryOffsetsLog(1)).led()
    assert await world.pend(5) is NONE
    world.end(committed=True)
    assert await world.groups.commits.delete_offsets("g", []) == (NONE, [])
    await world.agrees({"t": 5})
    await world.groups.close()
