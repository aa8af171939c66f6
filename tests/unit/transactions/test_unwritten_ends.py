"""Ends of transactions that are written later, together, or not at all."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from logyard.broker.errors import ErrorCode
from logyard.broker.transactions import unwritten_ends
from logyard.broker.transactions.events import Producer
from logyard.broker.transactions.states import State
from tests.support.transaction_world import TP, TransactionWorld

NONE = ErrorCode.NONE
COMMITTED = [State.EMPTY, State.ONGOING, State.PREPARE_COMMIT]
COMMIT = [*COMMITTED, State.COMPLETE_COMMIT]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No end is written but by `world.settle`, however slow the machine is, unless a test says so."""
    monkeypatch.setattr(unwritten_ends, "WRITE_AFTER_S", 3600.0)


async def until(world: TransactionWorld, states: list[State]) -> None:
    async with asyncio.timeout(20):
        while world.states() != states:
            await asyncio.sleep(0.001)


async def ended(world: TransactionWorld, name: str = "x") -> Producer:
    """An id whose transaction has its markers; the record of its end is not written."""
    producer = await world.begin(name, TP[0])
    assert await world.coordinator.end(name, producer, commits=True) is NONE
    await world.pass_turns()
    assert world.coordinator.describe(name).state == "CompleteCommit"
    assert world.states(name) == COMMITTED
    return producer


async def test_an_end_is_written_after_a_while(world: TransactionWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unwritten_ends, "WRITE_AFTER_S", 0.001)
    producer = await world.begin("x", TP[0])
    assert await world.end(producer) is NONE
    await until(world, COMMIT)
    assert await world.end(producer) is NONE, "a retry"


async def test_the_next_transaction_needs_no_record_of_the_last_ones_end(world: TransactionWorld) -> None:
    producer = await ended(world)
    assert await world.coordinator.add_partitions("x", producer, [TP[1]]) is NONE
    await world.settle()
    assert world.states() == [*COMMITTED, State.ONGOING]
    assert await world.end(producer, commits=False) is NONE
    await world.settle()
    assert world.states() == [*COMMITTED, State.ONGOING, State.PREPARE_ABORT, State.COMPLETE_ABORT]


async def test_the_next_producer_needs_none_either(world: TransactionWorld) -> None:
    await ended(world)
    assert (await world.initialize()).producer == Producer(1000, 1)
    await world.settle()
    assert world.states() == [*COMMITTED, State.EMPTY]


async def test_an_end_is_never_behind_what_came_after_it(world: TransactionWorld) -> None:
    producer = await ended(world)
    world.log.holds = True
    adding = asyncio.ensure_future(world.coordinator.add_partitions("x", producer, [TP[1]]))
    await world.settle()
    assert world.states() == [*COMMITTED, State.ONGOING], "no end while that is under way"
    world.log.holds = False
    world.log.acknowledge()
    await world.settle()
    assert await adding is NONE
    assert world.states() == [*COMMITTED, State.ONGOING]


async def test_an_end_is_written_where_the_next_transaction_could_not_begin(world: TransactionWorld) -> None:
    producer = await ended(world)
    world.log.holds = True
    adding = asyncio.ensure_future(world.coordinator.add_partitions("x", producer, [TP[1]]))
    await world.settle()
    world.log.holds = False
    world.log.acknowledge(ErrorCode.REQUEST_TIMED_OUT)
    await world.settle()
    assert await adding is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.states() == [*COMMITTED, State.ONGOING, State.COMPLETE_COMMIT]


async def test_an_end_is_stored_however_often_it_takes(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unwritten_ends, "WRITE_AFTER_S", 0.001)
    monkeypatch.setattr(unwritten_ends, "WRITE_AGAIN_S", 0.001)
    producer = await world.begin("x", TP[0])
    world.links.gate.clear()
    assert await world.end(producer) is NONE
    world.log.failing = ErrorCode.NOT_ENOUGH_REPLICAS
    tries = len(world.log.batches) + 3
    world.links.gate.set()
    async with asyncio.timeout(20):
        while len(world.log.batches) < tries:
            await asyncio.sleep(0.001)
    assert world.states() == COMMITTED
    raised: list[object] = []

    def fail(*arguments: object) -> None:
        raised.append(arguments)
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(world.log, "append", fail)
        async with asyncio.timeout(20):
            while len(raised) < 3:
                await asyncio.sleep(0.001)
    world.log.failing = NONE
    await until(world, COMMIT)
    await asyncio.sleep(0.02)
    assert world.states() == COMMIT, "once"
    assert len(world.links.sent) == 1


async def test_ends_are_written_together(world: TransactionWorld) -> None:
    number = world.owned.partitioning.partition_for
    names = [name for name in (f"id-{n:04}" for n in range(100)) if number(name) == 0][:6]
    for name in names:
        await ended(world, name)
    world.log.batches.clear()
    world.coordinator.write_ends()
    assert [len(records) for _, records, _ in world.log.batches] == [6]
    world.log.batch_limit = 1
    for name in names[:3]:
        producer = world.coordinator.describe(name).producer
        assert await world.coordinator.add_partitions(name, producer, [TP[0]]) is NONE
        assert await world.coordinator.end(name, producer, commits=True) is NONE
    await world.pass_turns()
    world.log.batches.clear()
    world.coordinator.write_ends()
    assert [len(records) for _, records, _ in world.log.batches] == [1, 1, 1]


async def test_ends_that_are_due_anew_wait_for_the_next_turn(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn has had its portion, the last one of those that were due before."""
    timers: list[Callable[[], object]] = []
    monkeypatch.setattr(unwritten_ends, "PER_TURN", 1)

    class Handle:
        def cancel(self) -> None: ...

    class Timers:
        def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Handle:
            timers.append(partial(callback, *args))
            return Handle()

    ends = unwritten_ends.UnwrittenEnds(world.owned, world.log, Timers(), lambda: 0, 1000)
    for name in ("x", "y"):
        await ended(world, name)
    world.log.batches.clear()

    def add(name: str) -> None:
        led = world.owned.find(name)
        assert not isinstance(led, ErrorCode)
        ends.add(led, led.transactions[name])

    add("x")
    timers.pop()()  # what is due is written in the next turn
    add("y")
    portion, due = timers
    timers.clear()
    portion()
    assert len(world.log.batches) == 1
    due()
    assert len(world.log.batches) == 1
    timers.pop()()
    assert len(world.log.batches) == 2


async def test_the_next_coordinator_writes_the_same_markers_again(world: TransactionWorld) -> None:
    await ended(world)
    world.links.sent.clear()
    await world.elect(6)
    assert [(marker.commits, marker.partitions) for _, marker in world.links.sent] == [(True, [TP[0]])]
    assert world.states() == COMMIT


async def test_an_end_of_an_earlier_election_is_not_written(world: TransactionWorld) -> None:
    await ended(world)
    for partition in range(3):
        world.coordinator.on_follower(partition)
    await world.settle()
    assert world.states() == COMMITTED
