"""Commits, deletions and expiry while the log has not acknowledged what came before."""

import asyncio
from typing import Any

import pytest
import structlog.testing

from logyard.broker.errors import ErrorCode
from logyard.broker.groups import offsets
from logyard.broker.groups.events import Join, Leaver, OffsetCommit, Sync
from tests.support.committing_world import CommittingWorld, turns
from tests.support.memory_offsets_log import MemoryOffsetsLog

JOIN = Join("", None, "client", "/h", 10_000, 60_000, "consumer", (("range", b"m"),))
RETENTION_MS = 7 * 86_400_000
DAY_S = 86_400


async def led(log: MemoryOffsetsLog | None = None) -> CommittingWorld:
    return await CommittingWorld(log or MemoryOffsetsLog(1)).led()


def offset(world: CommittingWorld, topic: str = "t") -> int:
    code, committed = world.fetched(topic)
    assert code is ErrorCode.NONE
    return committed


async def next_offset(world: CommittingWorld) -> int:
    """What the next coordinator reads."""
    return (await world.read_again())["t"]


async def test_a_commit_that_comes_while_its_group_is_deleted_is_kept() -> None:
    world = await led()
    await world.commit(1)
    world.log.held = True
    deletion = asyncio.ensure_future(world.groups.commits.delete_group("g"))
    await turns()
    commit = asyncio.ensure_future(world.commit(2))
    await turns()
    world.log.acknowledge_all()
    assert (await deletion, await commit) == (ErrorCode.NONE, ErrorCode.NONE)
    assert offset(world) == await next_offset(world) == 2
    await world.groups.close()


async def test_a_member_that_joins_while_its_group_is_deleted_stays() -> None:
    world = await led()
    await world.commit(1)
    world.log.held = True
    deletion = asyncio.ensure_future(world.groups.commits.delete_group("g"))
    await turns()
    joined = await world.groups.join("g", JOIN)
    world.log.acknowledge_all()
    assert (await deletion, joined.error) == (ErrorCode.NONE, ErrorCode.NONE)
    assert world.groups.heartbeat("g", joined.member_id, None, joined.generation) is ErrorCode.NONE
    assert offset(world) == -1
    await world.groups.close()


async def test_a_member_that_was_given_an_id_while_its_group_is_deleted_may_come_back_with_it() -> None:
    world = await led()
    await world.commit(1)
    world.log.held = True
    deletion = asyncio.ensure_future(world.groups.commits.delete_group("g"))
    await turns()
    first = Join("", None, "client", "/h", 10_000, 60_000, "consumer", (("range", b"m"),), needs_known_id=True)
    given = (await world.groups.join("g", first)).member_id
    world.log.acknowledge_all()
    await deletion
    again = Join(given, None, "client", "/h", 10_000, 60_000, "consumer", (("range", b"m"),), needs_known_id=True)
    assert (await world.groups.join("g", again)).error is ErrorCode.NONE
    await world.groups.close()


async def test_a_deletion_does_not_touch_the_group_that_was_loaded_meanwhile() -> None:
    world = await led()
    await world.commit(1)
    world.log.held = True
    deletion = asyncio.ensure_future(world.groups.commits.delete_group("g"))
    await turns()
    world.log.held = False
    world.groups.on_follower(0)
    await world.led()
    await world.commit(2)
    world.log.acknowledge_all()
    await deletion
    assert offset(world) == 2
    await world.groups.close()


async def test_commits_count_in_the_order_of_the_log_whatever_is_acknowledged_first() -> None:
    world = await led()
    world.log.held = True
    first = asyncio.ensure_future(world.commit(1))
    await turns()
    second = asyncio.ensure_future(world.commit(2))
    await turns()
    world.log.acknowledge(1)
    await second
    world.log.acknowledge(0)
    await first
    assert offset(world) == await next_offset(world) == 2
    await world.groups.close()


async def test_expiry_leaves_what_is_about_to_be_replaced() -> None:
    world = await led()
    await world.commit(1)
    world.clock.advance(8 * DAY_S)
    world.log.held = True
    commit = asyncio.ensure_future(world.commit(2))
    await turns()
    expiry = asyncio.ensure_future(world.groups.expire_offsets())
    await turns()
    world.log.acknowledge_all()
    assert await commit == ErrorCode.NONE
    await expiry
    assert offset(world) == await next_offset(world) == 2
    await world.groups.close()


async def test_a_commit_that_comes_while_its_group_expires_is_kept() -> None:
    world = await led()
    await world.commit(1)
    world.clock.advance(8 * DAY_S)
    world.log.held = True
    expiry = asyncio.ensure_future(world.groups.expire_offsets())
    await turns()
    commit = asyncio.ensure_future(world.commit(2))
    await turns()
    world.log.acknowledge_all()
    assert await commit == ErrorCode.NONE
    await expiry
    assert offset(world) == await next_offset(world) == 2
    await world.groups.close()


async def test_one_groups_trouble_does_not_keep_the_others_from_expiring(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await led()
    for name in ("a", "b", "c"):
        await world.groups.commits.commit(name, "", None, -1, [OffsetCommit("t", 0, 1)])
    world.clock.advance(8 * DAY_S)
    whole, group = offsets.outlived, world.groups.roster.get("b")
    assert group is not None

    def outlived(committed: Any, *rest: Any) -> Any:
        if committed is group.offsets:
            raise ValueError("planted")
        return whole(committed, *rest)

    monkeypatch.setattr(offsets, "outlived", outlived)
    with structlog.testing.capture_logs() as said:
        await world.groups.expire_offsets()
    assert world.names() == ["b"]
    assert [(line["event"], line.get("group"), line.get("offsets")) for line in said] == [
        ("could not expire offsets", "b", None),
        ("offsets expired", None, 2),
    ]
    await world.groups.close()


async def test_offsets_that_could_not_be_expired_are_told() -> None:
    world = await led()
    await world.commit(1)
    world.clock.advance(8 * DAY_S)
    world.log.failing = ErrorCode.NOT_ENOUGH_REPLICAS
    with structlog.testing.capture_logs() as said:
        await world.groups.expire_offsets()
    assert [(line["event"], line["error"], line["offsets"]) for line in said] == [
        ("offsets not expired", "COORDINATOR_NOT_AVAILABLE", 1)
    ]
    assert offset(world) == 1
    await world.groups.close()


@pytest.mark.parametrize(
    ("appended", "heard"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD),
    ],
)
async def test_what_a_member_hears_of_its_append(appended: ErrorCode, heard: ErrorCode) -> None:
    """As in Kafka, where most is passed on."""
    world = await led()
    world.log.held = True
    commit = asyncio.ensure_future(world.commit(1))
    await turns()
    world.log.acknowledge(0, appended)
    assert await commit is heard
    assert offset(world) == -1
    await world.groups.close()


async def test_a_deletion_that_times_out_is_to_be_tried_again() -> None:
    """Kafka does not wait for it; its admin client gives up after REQUEST_TIMED_OUT."""
    world = await led()
    await world.commit(1)
    world.log.held = True
    deletion = asyncio.ensure_future(world.groups.commits.delete_group("g"))
    await turns()
    world.log.acknowledge(0, ErrorCode.REQUEST_TIMED_OUT)
    assert await deletion is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.names() == ["g"]
    await world.groups.close()


async def settled(world: CommittingWorld, metadata: bytes = b"m") -> str:
    """A member of the Stable group g; its id."""
    joined = await world.groups.join("g", Join("", None, "c", "/h", 10_000, 60_000, "consumer", (("range", metadata),)))
    given = {joined.member_id: b"all"}
    await world.groups.sync("g", Sync(joined.member_id, None, joined.generation, assignments=given))
    return joined.member_id


async def test_retention_counts_from_when_the_group_became_empty() -> None:
    world = await led()
    member = await settled(world)
    commit = OffsetCommit("t", 0, 5, commit_ms=world.clock.now_ms())
    await world.groups.commits.commit("g", member, None, 1, [commit])
    world.clock.advance(8 * DAY_S)
    world.groups.leave("g", [Leaver(member)])
    await world.groups.expire_offsets()
    assert offset(world) == 5
    world.clock.advance(8 * DAY_S)
    await world.groups.expire_offsets()
    assert world.names() == []
    await world.groups.close()


async def test_consumers_that_are_settled_lose_what_they_subscribe_to_no_more() -> None:
    world = await led()
    member = await settled(world, b"\0\0" + b"\0\0\0\1" + b"\0\1t")
    commits = [OffsetCommit(topic, 0, 5, commit_ms=world.clock.now_ms()) for topic in ("t", "u")]
    await world.groups.commits.commit("g", member, None, 1, commits)
    world.clock.advance(8 * DAY_S)
    await world.groups.expire_offsets()
    assert (offset(world, "t"), offset(world, "u")) == (5, -1)
    await world.groups.close()


async def test_an_explicit_expiry_goes_before_the_retention() -> None:
    world = await led()
    await world.commit(1, expire_ms=world.clock.now_ms() + 1000)
    await world.commit(2, "u", expire_ms=world.clock.now_ms() + 100 * DAY_S * 1000)
    world.clock.advance(2)
    await world.groups.expire_offsets()
    assert (offset(world, "t"), offset(world, "u")) == (-1, 2)
    world.clock.advance(20 * DAY_S)
    await world.groups.expire_offsets()
    assert offset(world, "u") == 2
    await world.groups.close()


async def test_what_is_refused_leaves_no_group_behind() -> None:
    world = await led()
    short = Join("", None, "c", "/h", 1, 60_000, "consumer", (("range", b"m"),))
    assert (await world.groups.join("refused", short)).error is ErrorCode.INVALID_SESSION_TIMEOUT
    nothing = Join("", None, "c", "/h", 10_000, 60_000, "consumer", ())
    assert (await world.groups.join("none", nothing)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    await world.commit(1, metadata="x" * 5000)
    world.log.failing = ErrorCode.NOT_ENOUGH_REPLICAS
    assert await world.commit(1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.names() == []
    await world.groups.close()


async def test_a_group_without_members_and_offsets_goes_with_the_next_look() -> None:
    """As in Kafka; it stood in the list for seven days."""
    world = await led()
    member = await settled(world)
    world.groups.leave("g", [Leaver(member)])
    await turns()
    assert world.names() == ["g"]
    await world.groups.expire_offsets()
    assert world.names() == []
    assert world.log.appended[-1][1] is None
    await world.groups.close()


async def test_an_offset_that_is_about_to_change_is_unstable() -> None:
    world = await led()
    await world.commit(1)
    world.log.held = True
    commit = asyncio.ensure_future(world.commit(2))
    await turns()
    fetch = world.groups.commits.fetch
    unstable = (ErrorCode.UNSTABLE_OFFSET_COMMIT, OffsetCommit("t", 0, -1))
    assert list(fetch("g", {("t", 0)}, require_stable=True)[1]) == [unstable]
    assert offset(world) == 1
    world.log.acknowledge_all()
    await commit
    assert [each.offset for _, each in fetch("g", None, require_stable=True)[1]] == [2]
    await world.groups.close()


async def test_offsets_of_a_deleted_topic_go_even_where_the_log_takes_nothing() -> None:
    world = await led()
    await world.commit(1)
    world.log.failing = ErrorCode.NOT_ENOUGH_REPLICAS
    with structlog.testing.capture_logs() as said:
        world.groups.commits.on_partitions_deleted([("t", 0)])
        await turns()
    assert offset(world) == -1
    assert [line["event"] for line in said] == ["could not write tombstones for a deleted topic"]
    await world.groups.close()
