"""Groups of very many members: what all of them wait for, and what is due for all of them, is done in turns."""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import structlog

from logyard.broker.clock import ManualClock
from logyard.broker.errors import ErrorCode
from logyard.broker.groups import membership, record_format
from logyard.broker.groups.events import Join, Joined, Sync, Synced
from logyard.broker.groups.members import Group, GroupState, Member
from logyard.broker.groups.runner import DONE_AT_ONCE, TURNS_BEFORE_DUE, GroupCoordinator
from logyard.broker.server.handlers import describe_groups, join_group
from logyard.broker.server.large_answers import PARTS_AT_ONCE
from logyard.broker.server.rights import EverythingAllowed
from logyard.broker.server.turns import Turns
from tests.support.committing_world import turns
from tests.support.longest_turn import LongestTurn, longest_turn_of_the_new
from tests.support.memory_offsets_log import MemoryOffsetsLog

MANY = 10_000
JOIN_S, SESSION_S = 3.0, 10.0
JOIN = Join("", None, "client", "/h", int(SESSION_S * 1000), int(JOIN_S * 1000), "consumer", (("range", b"m" * 30),))
NOT_BEFORE_ALL_ARE_THERE = membership.Rules(initial_delay_ms=int(JOIN_S * 1000))


class Timer:
    """One that a test lets run out."""

    def __init__(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.delay_s, self.callback, self.runs = delay_s, callback, True

    def cancel(self) -> None:
        self.runs = False


class Coordinating:
    """A coordinator of one partition whose timers a test lets run out."""

    def __init__(self, rules: membership.Rules = NOT_BEFORE_ALL_ARE_THERE) -> None:
        ids = itertools.count()
        self.log, self.clock, self._timers = MemoryOffsetsLog(1), ManualClock(), list[Timer]()
        self.groups = GroupCoordinator(self.log, self.clock, self._call_later, lambda: str(next(ids)), rules)

    def _call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        self._timers.append(Timer(delay_s, callback))
        return self._timers[-1]

    async def led(self) -> "Coordinating":
        self.groups.on_leader(0)
        await turns()
        return self

    def run_out(self, delay_s: float) -> None:
        """All timers of this length run out at once."""
        due = [timer for timer in self._timers if timer.runs and timer.delay_s == delay_s]
        self._timers = [timer for timer in self._timers if timer.runs and timer.delay_s != delay_s]
        for timer in due:
            timer.callback()

    def running(self, delay_s: float) -> int:
        return sum(timer.runs and timer.delay_s == delay_s for timer in self._timers)

    async def joining(self, name: str, count: int) -> "list[asyncio.Task[Joined]]":
        """So many members have sent their joins."""
        sent = [asyncio.ensure_future(self.groups.join(name, JOIN)) for _ in range(count)]
        await turns()
        return sent

    async def stable(self, name: str, count: int) -> list[Joined]:
        """A group of so many members that have their assignments."""
        waiting = await self.joining(name, count)
        self.run_out(JOIN_S)
        joined = await asyncio.gather(*waiting)
        await asyncio.gather(*await self.synced(name, joined))
        return joined

    async def synced(self, name: str, joined: list[Joined]) -> "list[asyncio.Future[Synced]]":
        """All but the leader, which has all members in its answer, have sent their syncs, and now it does."""
        leader = max(joined, key=lambda each: len(each.members))
        sent = [self._sync(name, each) for each in joined if each is not leader]
        await turns()
        return [self._sync(name, leader, {each.member_id: b"a" * 20 for each in joined}), *sent]

    def _sync(
        self, name: str, joined: Joined, given: Mapping[str, bytes] = MappingProxyType({})
    ) -> "asyncio.Future[Synced]":
        request = Sync(joined.member_id, None, joined.generation, assignments=given)
        return asyncio.ensure_future(self.groups.sync(name, request))

    def group(self, name: str) -> Group:
        found = self.groups.roster.get(name)
        assert found is not None
        return found


async def answered(waiting: list[Any]) -> tuple[list[Any], int]:
    """The answers, and how many came in one turn of the loop at most."""
    most = before = 0
    while not all(each.done() for each in waiting):
        await asyncio.sleep(0)
        done = sum(each.done() for each in waiting)
        most, before = max(most, done - before), done
    return [each.result() for each in waiting], most


def is_short(longest: LongestTurn) -> bool:
    return longest.seconds < 0.06


async def test_a_rebalance_of_very_many_members_is_answered_in_turns() -> None:
    """The end of the joins was one turn of 160 ms, and all requests were answered in the next one."""
    world = await Coordinating().led()
    waiting = await world.joining("g", MANY)
    async with longest_turn_of_the_new() as longest:
        world.run_out(JOIN_S)
        joined = await asyncio.gather(*waiting)
    assert {(each.error, each.generation) for each in joined} == {(ErrorCode.NONE, 1)}
    assert [len(each.members) for each in joined if each.members] == [MANY]
    assert is_short(longest)
    assigning = await world.synced("g", joined)
    async with longest_turn_of_the_new() as longest:
        synced = await asyncio.gather(*assigning)
    assert {each.assignment for each in synced} == {b"a" * 20}
    assert is_short(longest)
    await world.groups.close()


@pytest.mark.parametrize("how", ["joined", "assigned", "given up"])
async def test_no_turn_has_more_answers_than_it_may(how: str) -> None:
    world = await Coordinating().led()
    waiting: list[Any] = await world.joining("g", 5 * DONE_AT_ONCE)
    if how == "given up":
        world.groups.on_follower(0)
    else:
        world.run_out(JOIN_S)
    found, most = await answered(waiting)
    if how == "assigned":
        found, most = await answered(await world.synced("g", found))
    assert {each.error for each in found} == {ErrorCode.NOT_COORDINATOR if how == "given up" else ErrorCode.NONE}
    assert most <= DONE_AT_ONCE
    await world.groups.close()


async def test_very_many_members_that_do_not_join_again_are_dropped_in_turns() -> None:
    """Each has a line in the log: 230 ms, where half of the members was gone."""
    world = await Coordinating().led()
    joined = await world.stable("g", MANY)
    waiting = [
        asyncio.ensure_future(world.groups.join("g", rejoin(each.member_id, b"changed")))
        for each in joined[: MANY // 2]
    ]
    await turns()
    with structlog.testing.capture_logs() as said:
        async with longest_turn_of_the_new() as longest:
            world.run_out(JOIN_S)
            found = await asyncio.gather(*waiting)
        await turns(MANY // DONE_AT_ONCE)
    assert {(each.error, each.generation) for each in found} == {(ErrorCode.NONE, 2)}
    assert len(world.group("g").members) == MANY // 2
    assert sum(line["note"].endswith("did not rejoin") for line in said) == MANY // 2
    assert is_short(longest)
    await world.groups.close()


def rejoin(member_id: str, metadata: bytes = b"m") -> Join:
    return Join(member_id, None, "client", "/h", 10_000, 3_000, "consumer", (("range", metadata),))


async def test_very_many_sessions_that_end_at_once_end_in_turns() -> None:
    """A client with very many members dies: they were thrown out in one turn."""
    world = await Coordinating().led()
    await world.stable("g", MANY)
    world.clock.advance(SESSION_S / 2)
    async with longest_turn_of_the_new() as longest:
        world.run_out(SESSION_S)
        async with asyncio.timeout(20):
            while world.running(SESSION_S / 2) < MANY:
                await asyncio.sleep(0)
    assert is_short(longest)
    world.clock.advance(SESSION_S / 2)
    async with longest_turn_of_the_new() as longest:
        world.run_out(SESSION_S / 2)
        async with asyncio.timeout(20):
            while world.group("g").members:
                await asyncio.sleep(0)
    assert world.groups.describe("g").state == "Empty"
    assert is_short(longest)
    await world.groups.close()


async def test_a_timer_that_was_stopped_while_it_waited_for_its_turn_is_not_acted_on() -> None:
    """One that ends the joins of a rebalance would drop who has not joined the next one yet."""
    world = await Coordinating().led()
    await world.stable("others", 20 * DONE_AT_ONCE)
    (one,) = await world.stable("g", 1)
    (two,) = await world.joining("g", 1)
    world.run_out(SESSION_S)
    world.run_out(JOIN_S)
    await turns(TURNS_BEFORE_DUE + 2)
    again = await world.groups.join("g", rejoin(one.member_id))
    assert (again.generation, (await two).generation) == (2, 2)
    (three,) = await world.joining("g", 1)
    assert world.group("g").state is GroupState.PREPARING
    await turns(40)
    assert (world.group("g").state, len(world.group("g").members)) == (GroupState.PREPARING, 3)
    assert not three.done()
    await world.groups.close()


async def test_the_sessions_of_very_many_loaded_members_of_one_group_begin_in_turns() -> None:
    world = Coordinating()
    group = Group("g", GroupState.STABLE, generation=1)
    for number in range(MANY):
        group.add(Member(f"m{number}", None, "c", "h", 10_000, 3_000, "consumer", (("range", b""),)))
    group.protocol = "range"
    world.log.append(0, [(record_format.group_key("g"), record_format.group_value(group, {}))])
    world.groups.on_leader(0)
    most = before = 0
    async with asyncio.timeout(20):
        while before < MANY:
            await asyncio.sleep(0)
            now = world.running(SESSION_S)
            most, before = max(most, now - before), now
    assert most <= MANY // 10
    await world.groups.close()


class CountedTurns(Turns):
    given = 0

    async def next(self) -> None:
        self.given += 1
        await super().next()


async def test_very_many_members_are_told_to_who_asks_in_turns() -> None:
    """A description was one turn of 25 ms for ten thousand."""
    world = await Coordinating().led()
    leader = max(await world.stable("g", MANY), key=lambda each: len(each.members))
    services: Any = SimpleNamespace(groups=world.groups, rights=EverythingAllowed(), turns=CountedTurns())
    request: Any = SimpleNamespace(api_key=15, api_version=2, session=None)
    answer = await describe_groups.handle(services, request, SimpleNamespace(groups=["g"]))
    (told,) = answer["groups"]
    assert (told["group_state"], len(told["members"])) == ("Stable", MANY)
    assert services.turns.given >= MANY // PARTS_AT_ONCE

    async def join(group_id: str, join: Join) -> Joined:
        return leader

    services = SimpleNamespace(groups=SimpleNamespace(join=join), turns=CountedTurns())
    request = SimpleNamespace(api_key=11, api_version=9, client_id="c", session=SimpleNamespace(client_host="h"))
    asked = SimpleNamespace(
        group_id="g",
        member_id=leader.member_id,
        group_instance_id=None,
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        protocol_type="consumer",
        protocols=(),
    )
    answer = await join_group.handle(services, request, asked)
    assert len(answer["members"]) == MANY
    assert services.turns.given >= MANY // PARTS_AT_ONCE
    await world.groups.close()


async def test_an_assignment_that_no_log_takes_is_refused_before_it_is_made_a_record() -> None:
    """One of 95 MB was put together, into a batch, and refused then: 0.5 s for whoever leads a group."""
    world = await Coordinating(membership.Rules(initial_delay_ms=0)).led()
    joined = await world.groups.join("g", JOIN)
    large = MappingProxyType({joined.member_id: bytes(95_000_000)})
    async with longest_turn_of_the_new() as longest:
        synced = await world.groups.sync("g", Sync(joined.member_id, None, 1, assignments=large))
    assert synced.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert longest.seconds < 0.05
    assert world.log.appended == []
    again = await world.groups.join("g", rejoin(joined.member_id))
    small = MappingProxyType({joined.member_id: b"all"})
    synced = await world.groups.sync("g", Sync(joined.member_id, None, again.generation, assignments=small))
    assert (synced.error, synced.assignment, len(world.log.appended)) == (ErrorCode.NONE, b"all", 1)
    await world.groups.close()
