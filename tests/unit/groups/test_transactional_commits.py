"""Offsets committed in transactions: pending, counted and dropped, whatever else happens to their group (facts §17.4).

After each history the next coordinator has to read the same from the log.
"""

import asyncio
from typing import Any

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.groups.events import Committer, Join, OffsetCommit, Sync
from logyard.broker.groups.ports import Producer
from tests.support.committing_world import PID, CommittingWorld, turns
from tests.support.memory_offsets_log import MemoryOffsetsLog

NONE, UNSTABLE = ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT
OTHER = 8


@pytest.fixture
async def world() -> CommittingWorld:
    return await CommittingWorld(MemoryOffsetsLog(1)).led()


async def test_an_offset_is_pending_until_the_marker(world: CommittingWorld) -> None:
    await world.commit(1)
    assert await world.pend(5) is NONE
    assert (world.fetched(), world.fetched(stable=True)) == ((NONE, 1), (UNSTABLE, -1))
    await world.agrees({"t": 1})
    world.end()
    assert (world.fetched(), world.fetched(stable=True)) == ((NONE, 5), (NONE, 5))
    await world.agrees({"t": 5})


async def test_an_abort_drops_it(world: CommittingWorld) -> None:
    await world.commit(1)
    await world.pend(5)
    world.end(committed=False)
    assert world.fetched(stable=True) == (NONE, 1)
    await world.agrees({"t": 1})


async def test_all_offsets_of_a_group_are_the_committed_ones(world: CommittingWorld) -> None:
    await world.commit(1)
    await world.pend(5, "u")
    assert [commit.topic for _, commit in world.groups.commits.fetch("g", None)[1]] == ["t"]


async def test_a_marker_that_is_repeated_or_of_nobody_changes_nothing(world: CommittingWorld) -> None:
    await world.pend(5)
    world.end(OTHER)
    assert world.fetched(stable=True) == (UNSTABLE, -1)
    world.end()
    world.end(committed=False)
    world.end()
    await world.agrees({"t": 5})


async def test_the_later_commit_of_a_transaction_replaces_the_earlier(world: CommittingWorld) -> None:
    await world.pend(5)
    await world.pend(6)
    await world.pend(7, "u")
    world.end()
    await world.agrees({"t": 6, "u": 7})


async def test_of_two_commits_the_later_record_counts(world: CommittingWorld) -> None:
    await world.pend(5)
    await world.commit(6)
    await world.pend(1, "u", pid=OTHER)
    await world.pend(2, "u")
    await world.agrees({"t": 6, "u": -1})
    world.end()
    await world.agrees({"t": 6, "u": 2})
    world.end(OTHER)
    await world.agrees({"t": 6, "u": 2})
    await world.commit(3)
    await world.pend(9)
    world.end()
    await world.agrees({"t": 9, "u": 2})


async def test_an_aborted_commit_leaves_the_plain_one_that_came_before_or_after(world: CommittingWorld) -> None:
    await world.commit(1)
    await world.pend(5)
    await world.commit(2)
    world.end(committed=False)
    await world.agrees({"t": 2})


async def test_a_plain_commit_in_flight_makes_the_offset_unstable_too(world: CommittingWorld) -> None:
    world.log.held = True
    plain = asyncio.ensure_future(world.commit(1))
    pending = asyncio.ensure_future(world.pend(2))
    await turns()
    assert world.fetched(stable=True) == (UNSTABLE, -1)
    world.log.acknowledge()
    await plain
    assert (world.fetched(), world.fetched(stable=True)) == ((NONE, 1), (UNSTABLE, -1))
    world.log.acknowledge()
    await pending
    world.end()
    await world.agrees({"t": 2})


async def test_a_plain_commit_that_is_acknowledged_after_the_marker(world: CommittingWorld) -> None:
    """Its record lies before that of the transaction, which counts all the same."""
    world.log.held = True
    plain = asyncio.ensure_future(world.commit(1))
    await turns()
    pending = asyncio.ensure_future(world.pend(2))
    await turns()
    world.log.acknowledge(1)
    world.end()
    assert world.fetched() == (NONE, 2)
    world.log.acknowledge()
    await asyncio.gather(plain, pending)
    await world.agrees({"t": 2})


async def test_a_commit_of_the_next_transaction_is_not_the_markers(world: CommittingWorld) -> None:
    """The marker's acknowledgement may be heard of when the next transaction has committed already."""
    await world.pend(5)
    at = world.log.end_transaction(0, PID, committed=True)
    await world.pend(6)
    await world.pend(1, "u")
    world.groups.commits.end_transaction(0, PID, at, committed=True)
    # In the log the later commit is pending; here the earlier one is forgotten for it until the next marker.
    assert world.fetched("u", stable=True) == (UNSTABLE, -1)
    assert world.fetched(stable=True) == (UNSTABLE, -1)
    world.end()
    await world.agrees({"t": 6, "u": 1})


async def test_a_refused_append_leaves_what_was_pending(world: CommittingWorld) -> None:
    await world.pend(5)
    world.log.failing = ErrorCode.NOT_ENOUGH_REPLICAS
    assert await world.pend(6) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await world.pend(6, group="new") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.failing = NONE
    assert world.names() == ["g"]
    world.end()
    await world.agrees({"t": 5})


@pytest.mark.parametrize(
    ("appended", "heard"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
    ],
)
async def test_what_lies_in_the_log_is_pending_though_it_is_not_acknowledged(
    world: CommittingWorld, appended: ErrorCode, heard: ErrorCode
) -> None:
    """The client may commit its transaction all the same, and the next coordinator reads the offset."""
    world.log.held = True
    waiting = asyncio.ensure_future(world.pend(5))
    await turns()
    world.log.acknowledge(0, appended)
    assert await waiting is heard
    assert world.fetched(stable=True) == (UNSTABLE, -1)
    world.end()
    await world.agrees({"t": 5})


async def test_transactions_of_several_producers_in_one_group(world: CommittingWorld) -> None:
    await world.pend(5)
    await world.pend(6, "u", pid=OTHER)
    world.end(OTHER, committed=False)
    assert world.fetched(stable=True) == (UNSTABLE, -1)
    world.end()
    await world.agrees({"t": 5})


async def test_a_marker_ends_the_transaction_in_its_partition_only() -> None:
    world = await CommittingWorld(MemoryOffsetsLog(4)).led()
    by_partition: dict[int, list[str]] = {}
    for name in map("g{}".format, range(12)):
        by_partition.setdefault(world.groups.partition_for(name), []).append(name)
        await world.pend(5, group=name)
    here, there = list(by_partition)[:2]
    world.end(partition=here)
    for partition, names in by_partition.items():
        expected = (NONE, 5) if partition == here else (UNSTABLE, -1)
        assert {world.fetched(group=name, stable=True) for name in names} == {expected}
    world.end(partition=there, committed=False)
    assert not set(by_partition[there]) & set(world.names())
    for name in by_partition[here]:
        await world.agrees({"t": 5}, name)


# Who may commit


async def joined(world: CommittingWorld, instance_id: str | None = None, *, synced: bool = True) -> tuple[str, int]:
    request = Join("", instance_id, "client", "/h", 10_000, 60_000, "consumer", (("range", b"m"),))
    answer = await world.groups.join("g", request)
    if synced:
        sync = Sync(answer.member_id, instance_id, answer.generation, assignments={answer.member_id: b""})
        assert (await world.groups.sync("g", sync)).error is NONE
    return answer.member_id, answer.generation


@pytest.mark.parametrize(
    ("who", "expected"),
    [
        ({}, NONE),
        ({"member_id": "MINE"}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "MINE", "generation": 1}, NONE),
        ({"member_id": "MINE", "generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "who", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "MINE", "instance_id": "i", "generation": 1}, NONE),
        ({"member_id": "who", "instance_id": "i", "generation": 1}, ErrorCode.FENCED_INSTANCE_ID),
        ({"member_id": "MINE", "instance_id": "nobody", "generation": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
@pytest.mark.parametrize("synced", [True, False])
async def test_members_of_a_living_group(
    world: CommittingWorld, who: dict[str, Any], expected: ErrorCode, synced: bool
) -> None:
    """A rebalance does not matter, unlike to plain commits."""
    member_id, generation = await joined(world, "i", synced=synced)
    assert generation == 1
    named: dict[str, Any] = {key: member_id if value == "MINE" else value for key, value in who.items()}
    assert await world.pend(5, **named) is expected
    await world.groups.close()


async def test_who_commits_for_a_group_without_members(world: CommittingWorld) -> None:
    assert await world.pend(5, generation=0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert await world.pend(5, member_id="x", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.names() == []
    assert await world.pend(5, member_id="x") is NONE


async def test_metadata_that_is_too_long_is_that_partitions_fault(world: CommittingWorld) -> None:
    commits = [OffsetCommit("t", 0, 5, metadata="m" * 4097), OffsetCommit("u", 0, 6, metadata="m" * 4096)]
    codes = await world.groups.commits.commit_in_transaction("g", Committer(), Producer(PID, 0), commits)
    assert codes == [ErrorCode.OFFSET_METADATA_TOO_LARGE, NONE]
    world.end()
    await world.agrees({"u": 6})


async def test_while_groups_are_not_here_or_not_read(world: CommittingWorld) -> None:
    world.groups.on_follower(0)
    assert await world.pend(5) is ErrorCode.NOT_COORDINATOR
    world.groups.on_leader(0)
    assert await world.pend(5) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await turns()
    assert await world.pend(5) is NONE


# What else happens to the group


async def test_pending_offsets_keep_a_group_and_what_lies_beneath_them(world: CommittingWorld) -> None:
    """Kafka 3.9 lets the committed one beneath expire, and reads the group from the start if the transaction aborts."""
    await world.commit(1)
    await world.pend(5)
    await world.pend(9, group="h")
    world.clock.advance(8 * 86_400)
    await world.groups.expire_offsets()
    await world.agrees({"t": 1})
    assert world.names() == ["g", "h"]
    world.end(committed=False)
    await world.agrees({"t": 1})
    await world.groups.expire_offsets()
    assert world.names() == []
    assert await world.read_again() == {}


async def test_the_offset_of_a_transaction_has_its_whole_time(world: CommittingWorld) -> None:
    await world.pend(5)
    world.end()
    world.clock.advance(6 * 86_400)
    await world.groups.expire_offsets()
    assert world.fetched() == (NONE, 5)
    world.clock.advance(2 * 86_400)
    await world.groups.expire_offsets()
    assert world.names() == []


async def test_a_deleted_topic_drops_both(world: CommittingWorld) -> None:
    await world.commit(1)
    await world.pend(5)
    await world.pend(6, "u")
    await world.pend(7, group="h")
    world.groups.commits.on_partitions_deleted([("t", 0)])
    await turns()
    assert world.all() == {"u": -1}
    assert world.names() == ["g"]
    world.end()
    assert (world.fetched(), world.fetched("u")) == ((NONE, -1), (NONE, 6))


async def test_deleted_offsets_are_committed_anew_by_the_transaction(world: CommittingWorld) -> None:
    """Of a deletion and a commit that comes after it the commit counts, here and for the next coordinator."""
    await world.commit(1)
    await world.pend(5)
    assert await world.groups.commits.delete_offsets("g", [("t", 0)]) == (NONE, [NONE])
    await world.agrees({"t": -1})
    world.end()
    await world.agrees({"t": 5})


async def test_a_deleted_group_keeps_what_is_pending(world: CommittingWorld) -> None:
    await world.commit(1)
    await world.pend(5, "u")
    assert await world.groups.commits.delete_group("g") is NONE
    await world.agrees({"u": -1})
    world.end()
    await world.agrees({"u": 5})


async def test_a_deleted_group_without_the_transactions_success_is_gone(world: CommittingWorld) -> None:
    await world.pend(5)
    assert await world.groups.commits.delete_group("g") is NONE
    world.end(committed=False)
    assert world.names() == []
    assert await world.read_again() == {}


async def test_pending_offsets_move_with_the_partition(world: CommittingWorld) -> None:
    await world.pend(5)
    world.groups.on_follower(0)
    world.end()  # heard of by mistake: the groups are someone else's
    world.groups.on_leader(0)
    await turns()
    await world.agrees({"t": 5})
    await world.pend(6)
    world.groups.on_follower(0)
    world.groups.on_leader(0)
    await turns()
    assert world.fetched(stable=True) == (UNSTABLE, -1)
    world.end()
    await world.agrees({"t": 6})
