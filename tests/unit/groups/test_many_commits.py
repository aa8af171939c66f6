"""Many groups with many commits: what looks at all of them lets others run meanwhile, and looks at no more than it has
to."""

import asyncio
import struct
import tracemalloc
from itertools import islice
from typing import Any

import pytest
import structlog

from logyard.broker.errors import ErrorCode
from logyard.broker.groups import offsets, owned_groups, record_format, subscription
from logyard.broker.groups.commits import LOOKED_AT_ONCE
from logyard.broker.groups.deletion import TOMBSTONE_BYTES_AT_ONCE, TOMBSTONES_AT_ONCE
from logyard.broker.groups.events import Committer, Join, OffsetCommit
from logyard.broker.groups.members import Group
from logyard.broker.groups.offsets import GroupOffsets, Written
from logyard.broker.groups.ports import Appended, Producer
from tests.support.committing_world import RETENTION_MS, CommittingWorld, turns
from tests.support.longest_turn import longest_turn_uncollected
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

    def counted(*given: Any) -> tuple[list[str], int] | None:
        nonlocal calls
        calls += 1
        return read(*given)

    monkeypatch.setattr(subscription, "topics_of", counted)
    partitions = [(topic, number) for topic in ("t", "u") for number in range(100)]
    code, answers = await world.groups.commits.delete_offsets("g", partitions)
    assert (joined.error, code, calls) == (ErrorCode.NONE, ErrorCode.NONE, 1)
    assert answers == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * 100 + [ErrorCode.NONE] * 100
    await world.groups.close()


class Counted(GroupOffsets):
    @property
    def known(self) -> list[offsets.Place]:
        raise AssertionError("all of them are looked at")


def test_a_deleted_topic_is_looked_for_and_not_each_commit() -> None:
    """A controller may delete topics one by one: each would look at all commits of all groups."""

    kept = Counted()
    for number in range(COMMITS):
        kept.load(("t", number), Written(0, OffsetCommit("t", number, 1)))
    kept.begin({("u", 0): OffsetCommit("u", 0, 1)})
    gone = dict.fromkeys([("u", 0), ("t", 7), ("v", 0)])
    assert kept.known_of(gone) == [("u", 0), ("t", 7)]


async def test_a_deleted_topic_of_very_many_groups_lets_others_run() -> None:
    """At once ten thousand groups take 0.16 s, over a log in memory."""
    world = await CommittingWorld(MemoryOffsetsLog(1)).led()
    for number in range(10_000):
        made = Group(f"g{number}")
        for topic in ("t", "u"):
            made.offsets.load((topic, 0), Written(0, OffsetCommit(topic, 0, 1)))
        world.groups.roster.add(made)
    async with longest_turn_uncollected() as longest:
        world.groups.commits.on_partitions_deleted([("t", number) for number in range(1_000)])
        async with asyncio.timeout(30):
            while len(world.log.appended) < 10_000:
                await asyncio.sleep(0)
        await turns()
    assert all(set(each.offsets.committed) == {("u", 0)} for each in world.groups.roster.all())
    assert longest.seconds < 0.05
    await world.groups.close()


async def test_many_deleted_topics_that_wait_take_little_memory() -> None:
    """Each kept a list of all groups until its turn came: a thousand for ten thousand groups took half a gigabyte."""
    world = await CommittingWorld(MemoryOffsetsLog(1)).led()
    for number in range(300):
        made = Group(f"g{number}")
        for topic in range(200):
            made.offsets.load((f"t{topic}", 0), Written(0, OffsetCommit(f"t{topic}", 0, 1)))
        world.groups.roster.add(made)
    tracemalloc.start()
    for topic in range(200):
        world.groups.commits.on_partitions_deleted([(f"t{topic}", 0)])
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1_000_000
    assert await world.commit(5, "t0", "g7") is ErrorCode.NONE  # made again meanwhile
    async with asyncio.timeout(60):
        while len(world.names()) > 1:
            await asyncio.sleep(0)
    await turns(20)
    assert world.all("g7") == {"t0": 5}
    await world.groups.close()


async def test_one_group_with_very_many_deleted_offsets_lets_others_run() -> None:
    """Their tombstones come in batches that a log takes; the last one has the group's own.

    To see that nothing else is left took 50 ms for 200,000: all were looked at.
    """
    world = await CommittingWorld(MemoryOffsetsLog(1)).led()
    made = Group("g")
    made.offsets = Counted()
    places = [("t", number) for number in range(20 * TOMBSTONES_AT_ONCE)]
    for topic, number in places:
        made.offsets.load((topic, number), Written(0, OffsetCommit(topic, number, 1)))
    world.groups.roster.add(made)
    async with longest_turn_uncollected() as longest:
        world.groups.commits.on_partitions_deleted(places)
        async with asyncio.timeout(30):
            while world.names():
                await asyncio.sleep(0)
    written = [batch.records for batch in world.log.partitions[0]]
    assert [len(records) for records in written] == [TOMBSTONES_AT_ONCE] * 19 + [TOMBSTONES_AT_ONCE + 1]
    assert written[-1][-1] == (record_format.group_key("g"), None)
    assert len(dict(world.log.appended)) == len(places) + 1
    assert longest.seconds < 0.05
    await world.groups.close()


@pytest.mark.parametrize("how", ["deleted", "expired", "offset by offset"])
async def test_a_group_with_very_many_offsets_goes_in_batches_that_a_log_takes(how: str) -> None:
    """One batch with all tombstones is longer than max.message.bytes: it would be refused each time."""
    world = await CommittingWorld(MemoryOffsetsLog(1)).led()
    made = group("g", world.clock.now_ms())
    places = [("t", number) for number in range(5 * TOMBSTONES_AT_ONCE // 2)]
    for topic, number in places:
        made.offsets.load((topic, number), Written(0, OffsetCommit(topic, number, 1, commit_ms=made.state_since_ms)))
    world.groups.roster.add(made)
    if how == "deleted":
        assert await world.groups.commits.delete_group("g") is ErrorCode.NONE
    elif how == "expired":
        world.clock.advance(RETENTION_MS / 1000 + 1)
        await world.groups.expire_offsets()
    else:
        code, answers = await world.groups.commits.delete_offsets("g", places)
        assert (code, set(answers)) == (ErrorCode.NONE, {ErrorCode.NONE})
    assert world.names() == []
    written = [batch.records for batch in world.log.partitions[0]]
    assert [len(records) for records in written] == [1000, 1000, 501]
    assert written[-1][-1] == (record_format.group_key("g"), None)
    assert len(dict(world.log.appended)) == len(places) + 1
    await world.groups.close()


@pytest.mark.parametrize("how", ["deleted", "topic deleted"])
async def test_the_tombstones_of_long_names_fit_into_batches_too(how: str) -> None:
    """A thousand of them are 30 MB: no log took them, so the group was never deleted and never expired."""
    world = await CommittingWorld(MemoryOffsetsLog(1)).led()
    made = Group("g" * 30_000)
    places = [("t", number) for number in range(5)]
    for topic, number in places:
        made.offsets.load((topic, number), Written(0, OffsetCommit(topic, number, 1)))
    world.groups.roster.add(made)
    if how == "deleted":
        assert await world.groups.commits.delete_group(made.group_id) is ErrorCode.NONE
    else:
        world.groups.commits.on_partitions_deleted(places)
        await turns(20)
    assert world.names() == []
    written = [[key for key, _ in batch.records] for batch in world.log.partitions[0]]
    assert [len(keys) for keys in written] == [2, 2, 2]
    assert all(sum(map(len, keys)) <= TOMBSTONE_BYTES_AT_ONCE for keys in written)
    await world.groups.close()


async def test_a_few_offsets_of_very_many_go_in_the_time_of_a_few() -> None:
    """Each batch of tombstones that was acknowledged cost the time of all offsets that the group has: 60 ms."""
    world = await CommittingWorld(MemoryOffsetsLog(1)).led()
    made = Group("g")
    for number in range(500_000):
        made.offsets.load(("t", number), Written(0, OffsetCommit("t", number, 1)))
    world.groups.roster.add(made)
    gone = [("t", number) for number in range(100)]
    async with longest_turn_uncollected() as longest:
        assert (await world.groups.commits.delete_offsets("g", gone))[0] is ErrorCode.NONE
    assert len(made.offsets.committed) == 500_000 - len(gone)
    assert longest.seconds < 0.02
    await world.groups.close()


@pytest.mark.parametrize("how", ["joined", "read", "committed", "deleted again", "given up"])
async def test_nobody_sees_a_part_of_a_group_s_deletion(how: str) -> None:
    world = await CommittingWorld(MemoryOffsetsLog(1)).led()
    made = group("g", world.clock.now_ms())
    for number in range(5 * TOMBSTONES_AT_ONCE):
        made.offsets.load(("t", number), Written(0, OffsetCommit("t", number, 1)))
    world.groups.roster.add(made)
    commits, last = world.groups.commits, ("t", 5 * TOMBSTONES_AT_ONCE - 1)
    deletion = asyncio.ensure_future(commits.delete_group("g"))
    await turns(2)
    assert 0 < len(world.log.appended) < 5 * TOMBSTONES_AT_ONCE
    if how == "joined":
        joining = Join("", None, "client", "/h", 10_000, 60_000, "consumer", (("range", b""),))
        assert (await world.groups.join("g", joining)).error is ErrorCode.NONE
    elif how == "read":
        assert [found.offset for _, found in commits.fetch("g", {last})[1]] in ([1], [-1])
    elif how == "committed":
        assert await commits.commit("g", "", None, -1, [OffsetCommit(*last, 7)]) == [ErrorCode.NONE]
    elif how == "deleted again":
        assert await commits.delete_group("g") is ErrorCode.NONE
    else:
        world.groups.on_follower(0)
    whole = len(dict(world.log.appended)) >= 5 * TOMBSTONES_AT_ONCE
    assert whole is (how != "given up")
    assert await deletion is (ErrorCode.NOT_COORDINATOR if how == "given up" else ErrorCode.NONE)
    if how == "committed":
        assert made.offsets.committed == {last: OffsetCommit(*last, 7)}
    elif how != "given up":
        assert not made.offsets.committed
    await world.groups.close()


async def test_a_group_that_is_used_during_a_deletion_is_asked_first() -> None:
    """A topic that is made again under its name has the offsets that are committed for it."""
    world = await CommittingWorld(MemoryOffsetsLog(1)).led()
    for group in ("read", "committed", "pended", "ended", "left"):
        assert await world.commit(5, group=group) is ErrorCode.NONE
    assert await world.pend(6, group="ended") is ErrorCode.NONE
    world.groups.commits.on_partitions_deleted([("t", 0)])
    world.log.held = True
    assert world.fetched(group="read", stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    later = asyncio.ensure_future(world.commit(1, group="committed"))
    pended = asyncio.ensure_future(world.pend(2, group="pended", pid=8))
    world.end(committed=True)
    await turns()
    world.log.acknowledge_all()
    await turns()
    assert (await later, await pended) == (ErrorCode.NONE, ErrorCode.NONE)
    world.end(8, committed=True)
    await world.agrees({}, "read")
    await world.agrees({"t": 1}, "committed")
    await world.agrees({"t": 2}, "pended")
    await world.agrees({}, "ended")
    await world.agrees({}, "left")
    await world.groups.close()


async def test_a_commit_in_the_middle_of_a_group_s_deletion_stays() -> None:
    world = await CommittingWorld(MemoryOffsetsLog(1)).led()
    made = Group("g")
    places = [("t", number) for number in range(3 * LOOKED_AT_ONCE)]
    for topic, number in places:
        made.offsets.load((topic, number), Written(0, OffsetCommit(topic, number, 1)))
    world.groups.roster.add(made)
    world.groups.commits.on_partitions_deleted(places)
    while not world.log.appended:
        await asyncio.sleep(0)
    assert len(world.log.appended) < len(places)
    commit = OffsetCommit(*places[-1], 7)
    assert await world.groups.commits.commit("g", "", None, -1, [commit]) == [ErrorCode.NONE]
    await turns(20)
    assert made.offsets.committed == {places[-1]: commit}
    await world.agrees({"t": 7})
    await world.groups.close()


async def test_a_partition_that_goes_has_no_name_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ten thousand groups each of 50 partitions took 30 ms, and a LeaderAndIsr may be about all of them."""
    world = await CommittingWorld(MemoryOffsetsLog(4)).led()
    for number in range(40):
        assert await world.commit(5, group=f"g{number}") is ErrorCode.NONE
    places = {name: world.groups.partition_for(name) for name in world.names()}
    assert set(places.values()) == {0, 1, 2, 3}

    def hashed(name: str, partitions: int) -> int:
        raise AssertionError(name)

    with monkeypatch.context() as patched:
        patched.setattr(owned_groups, "partition_for", hashed)
        world.groups.on_follower(1)
        assert world.names() == sorted(name for name, place in places.items() if place != 1)
        world.groups.on_leader(1)
        await turns()
        assert world.names() == sorted(places)
    await world.agrees({"t": 5}, "g1")
    await world.groups.close()


async def test_a_marker_that_an_append_replicates_is_taken_in_the_middle_of_a_deletion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await CommittingWorld(MemoryOffsetsLog(1)).led()
    assert await world.commit(5) is ErrorCode.NONE
    assert await world.pend(6, "u") is ErrorCode.NONE
    append = world.log.append

    def replicating(*args: Any) -> Appended:
        monkeypatch.undo()
        world.end(committed=True)
        return append(*args)

    monkeypatch.setattr(world.log, "append", replicating)
    with structlog.testing.capture_logs() as said:
        world.groups.commits.on_partitions_deleted([("t", 0)])
        await turns()
    assert said == []
    await world.agrees({"u": 6})
    await world.groups.close()


@pytest.mark.parametrize("in_transaction", [False, True])
async def test_what_is_too_long_for_a_batch_is_refused_before_it_is_made(in_transaction: bool) -> None:
    """Twenty thousand commits with notes of four kilobytes took 0.3 s, and were refused by the log then."""
    world = await CommittingWorld(MemoryOffsetsLog(1)).led()
    commits = [OffsetCommit("t", number, 1, metadata="x" * 4096) for number in range(20_000)]
    async with longest_turn_uncollected() as longest:
        made = world.groups.commits
        if in_transaction:
            codes = await made.commit_in_transaction("g", Committer(), Producer(7, 0), commits)
        else:
            codes = await made.commit("g", "", None, -1, commits)
    assert set(codes) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert len(codes) == len(commits)
    assert (world.names(), world.log.appended) == ([], [])
    assert longest.seconds < 0.05
    assert await world.commit(5) is ErrorCode.NONE
    await world.groups.close()


@pytest.mark.parametrize("require_stable", [False, True])
async def test_very_many_wanted_partitions_are_looked_up_one_by_one(require_stable: bool) -> None:
    """All of a request's, of whatever numbers, were looked up at once: 0.2 s for each million."""
    world = await CommittingWorld(MemoryOffsetsLog(1)).led()
    assert [await world.commit(offset) for offset in (4, 5)] == [ErrorCode.NONE] * 2
    wanted = {("t", number): None for number in range(500_000, -1, -1)}
    async with longest_turn_uncollected() as longest:
        code, found = world.groups.commits.fetch("g", wanted.keys(), require_stable=require_stable)
    assert longest.seconds < 0.02
    assert [(code, one.partition, one.offset) for _, one in islice(found, 2)] == [
        (code, 500_000, -1),
        (code, 499_999, -1),
    ]
    assert [one.offset for _, one in found if one.offset >= 0] == [5]
    await world.groups.close()
