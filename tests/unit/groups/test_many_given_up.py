"""Partitions of the offsets topic with very many groups go to another broker: the loop is not held up, and nobody sees
a group that is gone."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from logyard.broker.clock import ManualClock
from logyard.broker.errors import ErrorCode
from logyard.broker.groups import membership, record_format
from logyard.broker.groups.events import Join, Leaver, Sync
from logyard.broker.groups.members import Group, GroupState, Member
from logyard.broker.groups.runner import GroupCoordinator
from logyard.broker.portions import AT_ONCE
from logyard.broker.server.handlers import list_groups
from logyard.broker.server.rights import EverythingAllowed
from logyard.broker.server.turns import Turns
from tests.support.committing_world import CommittingWorld, turns
from tests.support.longest_turn import longest_turn_of_the_new
from tests.support.memory_offsets_log import MemoryOffsetsLog

JOIN = Join("", None, "client", "/h", 10_000, 60_000, "consumer", (("range", b"m"),))

MANY = 100_000


def add_stable(coordinator: GroupCoordinator, count: int) -> None:
    for number in range(count):
        group = Group(f"g{number}", GroupState.STABLE, generation=1)
        group.add(Member("m", None, "c", "h", 10_000, 10_000, "consumer", (("range", b""),)))
        coordinator.roster.add(group)


async def test_very_many_groups_are_given_up_in_turns() -> None:
    """Ten thousand took 94 ms."""
    world = await CommittingWorld(MemoryOffsetsLog(50)).led()
    add_stable(world.groups, 10_000)
    joining = [asyncio.ensure_future(world.groups.join(f"g{number}", JOIN)) for number in range(50)]
    await turns()
    async with longest_turn_of_the_new() as longest:
        for partition in range(50):
            world.groups.on_follower(partition)
        assert world.names() == []
        assert world.groups.describe("g7").error is ErrorCode.NOT_COORDINATOR
        assert world.groups.heartbeat("g7", "m", None, 1) is ErrorCode.NOT_COORDINATOR
        joined = await asyncio.wait_for(asyncio.gather(*joining), 10)
    assert {answer.error for answer in joined} == {ErrorCode.NOT_COORDINATOR}
    assert longest.seconds < 0.04
    await world.groups.close()


async def test_a_partition_with_very_many_groups_is_given_up_in_turns() -> None:
    """They were taken out of the table of all groups one by one, which took 60 ms for a hundred thousand."""
    world = await CommittingWorld(MemoryOffsetsLog(1)).led()
    for number in range(3 * MANY):
        world.groups.roster.add(Group(f"h{number}"))
    add_stable(world.groups, 1)
    joining = asyncio.ensure_future(world.groups.join("g0", JOIN))
    await turns()
    async with longest_turn_of_the_new() as longest:
        world.groups.on_follower(0)
        assert world.names() == []
        assert world.groups.describe("h7").error is ErrorCode.NOT_COORDINATOR
        assert (await asyncio.wait_for(joining, 10)).error is ErrorCode.NOT_COORDINATOR
    assert longest.seconds < 0.03
    await world.groups.close()


async def test_very_many_groups_are_looked_through_in_turns() -> None:
    """ListGroups by states no group is in: that was one turn, whatever it found."""
    world = await CommittingWorld(MemoryOffsetsLog(1)).led()
    for number in range(2 * MANY):
        world.groups.roster.add(Group(f"g{number}", GroupState.EMPTY if number else GroupState.STABLE))
    services = SimpleNamespace(groups=world.groups, rights=EverythingAllowed(), turns=Turns())
    request = SimpleNamespace(api_key=16, api_version=5, session=None)
    message = SimpleNamespace(states_filter=["stable"], types_filter=[])
    async with longest_turn_of_the_new() as longest:
        answer = await list_groups.handle(cast(Any, services), cast(Any, request), message)
    assert [group["group_id"] for group in answer["groups"]] == ["g0"]
    assert longest.seconds < 0.03
    await world.groups.close()


class Timer:
    def __init__(self, running: list["Timer"]) -> None:
        self._running = running
        running.append(self)

    def cancel(self) -> None:
        self._running.remove(self)


async def test_a_group_that_is_given_up_leaves_the_timers_of_one_that_was_loaded_meanwhile() -> None:
    """Its members would never be missed."""
    running: list[Timer] = []
    log = MemoryOffsetsLog(1)

    def call_later(delay_s: float, callback: Callable[[], None]) -> Timer:
        return Timer(running)

    made = GroupCoordinator(log, ManualClock(), call_later, lambda: "id", membership.Rules(initial_delay_ms=0))
    made.on_leader(0)
    await turns()
    add_stable(made, 5_000)
    joined = await made.join("g", JOIN)
    await made.sync("g", Sync(joined.member_id, None, 1, assignments={joined.member_id: b"all"}))
    assert len(running) == 1
    made.on_follower(0)
    made.on_leader(0)
    await turns(50)
    assert made.describe("g").state == "Stable"
    assert len(running) == 1
    await made.close()


async def test_the_sessions_of_very_many_loaded_members_begin_in_turns() -> None:
    """Those of all groups of a partition began in one turn."""
    log, running = MemoryOffsetsLog(1), list[Timer]()
    for number in range(3 * AT_ONCE):
        group = Group(f"g{number}", GroupState.STABLE, generation=1)
        group.protocol_type, group.protocol, group.leader_id = "consumer", "range", "m"
        group.add(Member("m", None, "c", "h", 10_000, 10_000, "consumer", (("range", b""),)))
        log.append(0, [(record_format.group_key(group.group_id), record_format.group_value(group, {"m": b"a"}))])

    def call_later(delay_s: float, callback: Callable[[], None]) -> Timer:
        return Timer(running)

    made = GroupCoordinator(log, ManualClock(), call_later, lambda: "id", membership.Rules(initial_delay_ms=0))
    made.on_leader(0)
    most = before = 0
    for _ in range(50):
        await asyncio.sleep(0)
        most, before = max(most, len(running) - before), len(running)
        if before and most == before:
            # One that has just left has no session any more; it is not begun again.
            assert made.leave(f"g{3 * AT_ONCE - 1}", [Leaver("m", None)]) == (ErrorCode.NONE, [ErrorCode.NONE])
            assert made.heartbeat(f"g{3 * AT_ONCE - 2}", "m", None, 1) is ErrorCode.NONE
    assert 0 < most <= AT_ONCE
    assert len(running) == 3 * AT_ONCE - 1
    await made.close()


async def test_an_assignment_that_is_stored_after_its_group_was_given_up_is_not_sent() -> None:
    world = await CommittingWorld(MemoryOffsetsLog(1)).led()
    add_stable(world.groups, 5_000)
    joined = await world.groups.join("g", JOIN)
    world.log.held = True
    syncing = asyncio.ensure_future(
        world.groups.sync("g", Sync(joined.member_id, None, 1, assignments={joined.member_id: b"all"}))
    )
    await turns()
    world.groups.on_follower(0)
    world.log.acknowledge_all()
    assert (await syncing).error is ErrorCode.NOT_COORDINATOR
    await world.groups.close()


async def test_a_group_that_cannot_be_given_up_stops_no_other() -> None:
    world = await CommittingWorld(MemoryOffsetsLog(1)).led()
    broken = Group("broken")
    broken.members["n"] = None  # type: ignore[assignment]  # what should not be
    world.groups.roster.add(broken)
    add_stable(world.groups, 1)
    joining = asyncio.ensure_future(world.groups.join("g0", JOIN))
    await turns()
    world.groups.on_follower(0)
    assert (await asyncio.wait_for(joining, 10)).error is ErrorCode.NOT_COORDINATOR
    await world.groups.close()
