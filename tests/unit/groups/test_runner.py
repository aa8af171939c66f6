"""The coordinator's shell over an in-memory offsets log: loading, waiting, storing, resigning."""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
import structlog.testing

from logyard.broker.clock import ManualClock
from logyard.broker.errors import ErrorCode, StorageError
from logyard.broker.groups import membership
from logyard.broker.groups.events import Join, Leaver, OffsetCommit, Sync
from logyard.broker.groups.ports import StoredBatch
from logyard.broker.groups.runner import TURNS_BEFORE_DUE, GroupCoordinator
from tests.support.memory_offsets_log import MemoryOffsetsLog

JOIN = Join("", None, "client", "/h", 10_000, 60_000, "consumer", (("range", b"m"),))


def coordinator(log: MemoryOffsetsLog, initial_delay_ms: int = 0, size_max: int = 100) -> GroupCoordinator:
    ids = itertools.count()
    return GroupCoordinator(
        log,
        ManualClock(),
        asyncio.get_running_loop().call_later,
        lambda: str(next(ids)),
        membership.Rules(initial_delay_ms=initial_delay_ms, size_max=size_max),
    )


async def loaded(log: MemoryOffsetsLog, size_max: int = 100) -> GroupCoordinator:
    made = coordinator(log, size_max=size_max)
    for partition in range(log.partition_count):
        made.on_leader(partition)
    while made.availability("g") is not ErrorCode.NONE or made.list_groups()[0] is not ErrorCode.NONE:
        await asyncio.sleep(0)
    return made


async def test_group_lives_through_a_change_of_coordinator() -> None:
    log = MemoryOffsetsLog()
    first = await loaded(log)
    joined = await first.join("g", JOIN)
    synced = await first.sync("g", Sync(joined.member_id, None, 1, assignments={joined.member_id: b"all"}))
    assert synced.assignment == b"all"
    commits = [OffsetCommit("t", 0, 41), OffsetCommit("t", 1, 7, metadata="x" * 5000)]
    answers = await first.commits.commit("g", joined.member_id, None, 1, commits)
    assert answers == [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    await first.close()

    second = await loaded(log)
    code, found = second.commits.fetch("g", dict.fromkeys((("t", 0), ("t", 1))).keys())
    assert (code, [c.offset for _, c in found]) == (ErrorCode.NONE, [41, -1])
    description = second.describe("g")
    assert description.state == "Stable"
    assert description.members[0].assignment == b"all"
    assert second.heartbeat("g", joined.member_id, None, 1) is ErrorCode.NONE
    assert second.leave("g", [Leaver(joined.member_id)]) == (ErrorCode.NONE, [ErrorCode.NONE])
    assert await second.commits.delete_group("g") is ErrorCode.NONE
    assert list(second.commits.fetch("g", None)[1]) == []
    await second.close()


@pytest.mark.parametrize(("size_max", "state"), [(2, "Stable"), (1, "PreparingRebalance")])
async def test_a_group_that_has_too_many_members_by_now_begins_a_rebalance(size_max: int, state: str) -> None:
    """group.max.size was lowered, and the brokers restarted: the group kept its size for ever."""
    log = MemoryOffsetsLog(1)
    first = await loaded(log)
    one = await first.join("g", JOIN)
    waiting = asyncio.ensure_future(first.join("g", JOIN))
    await asyncio.sleep(0)
    await first.join("g", replace(JOIN, member_id=one.member_id))
    other = await waiting
    assert (await first.sync("g", Sync(one.member_id, None, 2))).error is ErrorCode.NONE
    await first.close()

    second = await loaded(log, size_max)
    await asyncio.sleep(0)
    assert second.describe("g").state == state
    told = {second.heartbeat("g", each.member_id, None, 2) for each in (one, other)}
    assert told == {ErrorCode.NONE if state == "Stable" else ErrorCode.REBALANCE_IN_PROGRESS}
    if state != "Stable":
        again = asyncio.ensure_future(second.join("g", replace(JOIN, member_id=other.member_id)))
        await asyncio.sleep(0)
        refused = await second.join("g", replace(JOIN, member_id=one.member_id))
        assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert (await again).error is ErrorCode.NONE
        assert [member.member_id for member in second.describe("g").members] == [other.member_id]
    await second.close()


async def test_not_coordinator_before_leading_and_after_resigning() -> None:
    made = coordinator(MemoryOffsetsLog(1), initial_delay_ms=3000)
    assert (await made.join("g", JOIN)).error is ErrorCode.NOT_COORDINATOR
    made.on_leader(0)
    assert made.availability("g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert made.heartbeat("g", "a", None, 1) is ErrorCode.NONE
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(made.join("g", JOIN))
    await asyncio.sleep(0)
    made.on_follower(0)
    assert (await waiting).error is ErrorCode.NOT_COORDINATOR
    await made.close()


async def test_groups_that_cannot_be_read_are_not_served_in_part() -> None:
    class Failing(MemoryOffsetsLog):
        fails = True

        async def read(self, partition: int, take: Callable[[StoredBatch], None], note: Callable[[str], None]) -> None:
            await super().read(partition, take, note)
            if self.fails:
                raise StorageError("the directory has failed")

    log = Failing(1)
    made = coordinator(log)
    with structlog.testing.capture_logs() as said:
        made.on_leader(0)
        await asyncio.sleep(0.001)
    assert [(line["event"], line["log_level"]) for line in said] == [("groups not loaded", "warning")]
    assert made.availability("g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    made.on_follower(0)
    assert made.availability("g") is ErrorCode.NOT_COORDINATOR
    log.fails = False
    made.on_leader(0)
    await asyncio.sleep(0.001)
    assert made.availability("g") is ErrorCode.NONE
    await made.close()


async def test_failed_append_is_told_and_changes_nothing() -> None:
    log = MemoryOffsetsLog(1)
    made = await loaded(log)
    log.failing = ErrorCode.NOT_ENOUGH_REPLICAS
    answers = await made.commits.commit("g", "", None, -1, [OffsetCommit("t", 0, 1)])
    assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert list(made.commits.fetch("g", None)[1]) == []
    await made.close()


async def test_deleted_topics_lose_their_offsets() -> None:
    log = MemoryOffsetsLog(1)
    made = await loaded(log)
    await made.commits.commit("g", "", None, -1, [OffsetCommit("t", 0, 1), OffsetCommit("u", 0, 2)])
    made.commits.on_partitions_deleted([("t", 0)])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [c.topic for _, c in made.commits.fetch("g", None)[1]] == ["u"]
    assert log.partitions[0][-1].records[0][1] is None
    await made.close()


async def test_empty_group_goes_with_its_last_offset() -> None:
    log = MemoryOffsetsLog(1)
    made = await loaded(log)
    await made.commits.commit("g", "", None, -1, [OffsetCommit("t", 0, 1), OffsetCommit("t", 1, 2)])
    assert await made.commits.delete_offsets("g", [("t", 0)]) == (ErrorCode.NONE, [ErrorCode.NONE])
    assert len(made.list_groups()[1]) == 1
    assert await made.commits.delete_offsets("g", [("t", 1)]) == (ErrorCode.NONE, [ErrorCode.NONE])
    assert made.list_groups() == (ErrorCode.NONE, [])
    assert await made.commits.delete_group("g") is ErrorCode.GROUP_ID_NOT_FOUND
    await made.close()


async def test_metadata_is_bounded_in_characters() -> None:
    log = MemoryOffsetsLog()
    made = GroupCoordinator(
        log, ManualClock(), asyncio.get_running_loop().call_later, lambda: "id", metadata_chars_max=3
    )
    for partition in range(log.partition_count):
        made.on_leader(partition)
    while made.availability("g") is not ErrorCode.NONE:
        await asyncio.sleep(0)
    commits = [OffsetCommit("t", n, 1, metadata=text) for n, text in enumerate(("äöü", "four", ""))]
    answers = await made.commits.commit("g", "", None, -1, commits)
    assert answers == [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    await made.close()


async def test_a_wall_clock_that_is_set_neither_keeps_dead_members_nor_throws_out_living_ones() -> None:
    clock, timers = ManualClock(), ManualTimers()
    made = GroupCoordinator(
        MemoryOffsetsLog(1), clock, timers.call_later, lambda: "id", membership.Rules(initial_delay_ms=0)
    )
    made.on_leader(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    joined = await made.join("g", JOIN)
    given = {joined.member_id: b""}
    await made.sync("g", Sync(joined.member_id, None, 1, assignments=given))
    clock.advance(9)
    assert made.heartbeat("g", joined.member_id, None, 1) is ErrorCode.NONE
    clock.advance(1)
    clock.set_wall(3600)
    await timers.fire()
    assert made.describe("g").state == "Stable"
    clock.set_wall(-7200)
    clock.advance(9)
    await timers.fire()
    assert made.describe("g").state == "Empty"
    await made.close()


class ManualTimer:
    """One of ManualTimers."""

    def __init__(self, running: "list[ManualTimer]", callback: Callable[[], None]) -> None:
        self._running, self.callback = running, callback
        running.append(self)

    def cancel(self) -> None:
        if self in self._running:
            self._running.remove(self)


class ManualTimers:
    """Timers that a test fires."""

    def __init__(self) -> None:
        self._running: list[ManualTimer] = []

    def call_later(self, delay: float, callback: Callable[[], None]) -> ManualTimer:
        return ManualTimer(self._running, callback)

    async def fire(self) -> None:
        """Fire the one that runs."""
        (timer,) = self._running
        timer.cancel()
        timer.callback()
        for _ in range(2 * TURNS_BEFORE_DUE):
            await asyncio.sleep(0)


async def test_a_client_with_a_very_long_name_does_not_keep_its_group_from_being_stored() -> None:
    made = await loaded(MemoryOffsetsLog(1))
    named = Join("", None, "c" * 32_767, "/h", 10_000, 60_000, "consumer", (("range", b"m"),))
    joined = await made.join("g", named)
    synced = await made.sync("g", Sync(joined.member_id, None, 1, assignments={joined.member_id: b"all"}))
    assert synced.error is ErrorCode.NONE
    await made.close()


async def test_a_group_whose_record_cannot_be_made_is_told_so() -> None:
    """An instance id of 33 KB has no room in it. Nobody was answered, and all waited."""
    made = await loaded(MemoryOffsetsLog(1))
    first = await made.join("g", Join("", None, "c", "/h", 10_000, 60_000, "consumer", (("range", b"m"),)))
    again = asyncio.ensure_future(made.join("g", replace(JOIN, instance_id="i" * 33_000)))
    await asyncio.sleep(0)
    await made.join("g", replace(JOIN, member_id=first.member_id))
    other = await again
    waiting = asyncio.ensure_future(made.sync("g", Sync(other.member_id, "i" * 33_000, 2)))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        assert (await made.sync("g", Sync(first.member_id, None, 2))).error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await waiting).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert made.describe("g").state == "PreparingRebalance"
    await made.close()
