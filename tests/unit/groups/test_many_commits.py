"""Many groups with many commits: what looks at all of them lets others run meanwhile, and looks at no more than it has
to."""

import asyncio
import struct

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.groups import offsets, subscription
from logyard.broker.groups.commits import LOOKED_AT_ONCE
from logyard.broker.groups.events import Join, OffsetCommit
from logyard.broker.groups.members import Group
from logyard.broker.groups.offsets import GroupOffsets, Written
from tests.support.committing_world import CommittingWorld
from tests.support.memory_offsets_log import MemoryOffsetsLog

GROUPS, COMMITS = 100, 500


def group(name: str, committed_ms: int) -> Group:
    made = Group(name, state_since_ms=committed_ms)
    for number in range(COMMITS):
        made.offsets.load(("t", number), Written(0, OffsetCommit("t", number, 1, commit_ms=committed_ms)))
    return made


async def test_a_search_for_old_commits_lets_others_run() -> None:
    world = await CommittingWorld(MemoryOffsetsLog(1)).led()
    for number in range(GROUPS):
        world.groups.roster.add(group(f"g{number}", world.clock.now_ms()))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.ensure_future(others())
    await world.groups.expire_offsets()
    running.cancel()
    assert turns >= GROUPS * COMMITS // LOOKED_AT_ONCE
    await world.groups.close()


async def test_what_members_are_subscribed_to_is_read_once_for_a_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member with a megabyte of topics, and a request with ten thousand partitions, would take half an hour."""
    world = await CommittingWorld(MemoryOffsetsLog(1)).led()
    metadata = struct.pack(">hiH", 0, 1, 1) + b"t" + struct.pack(">i", -1)
    joining = Join("", None, "client", "/h", 10_000, 60_000, "consumer", (("range", metadata),))
    joined = await world.groups.join("g", joining)
    read, calls = subscription.topics_of, 0

    def counted(given: bytes) -> list[str] | None:
        nonlocal calls
        calls += 1
        return read(given)

    monkeypatch.setattr(subscription, "topics_of", counted)
    partitions = [(topic, number) for topic in ("t", "u") for number in range(100)]
    code, answers = await world.groups.commits.delete_offsets("g", partitions)
    assert (joined.error, code, calls) == (ErrorCode.NONE, ErrorCode.NONE, 1)
    assert answers == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * 100 + [ErrorCode.NONE] * 100
    await world.groups.close()


def test_a_deleted_topic_is_looked_for_and_not_each_commit() -> None:
    """A controller may delete topics one by one: each would look at all commits of all groups."""

    class Counted(GroupOffsets):
        @property
        def known(self) -> list[offsets.Place]:
            raise AssertionError("all of them are looked at")

    kept = Counted()
    for number in range(COMMITS):
        kept.load(("t", number), Written(0, OffsetCommit("t", number, 1)))
    kept.begin({("u", 0): OffsetCommit("u", 0, 1)})
    gone = dict.fromkeys([("u", 0), ("t", 7), ("v", 0)])
    assert kept.known_of(gone) == [("u", 0), ("t", 7)]
